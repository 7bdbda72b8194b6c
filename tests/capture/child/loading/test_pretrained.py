"""Models of repositories are built in the dtype of their weights, and called as their users call them."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from opcheck.capture.child.calls import calls, parse
from opcheck.capture.child.inputs.specs import inputs_for
from opcheck.capture.child.loading import libraries, pretrained
from opcheck.capture.child.loading.load import Loaded, as_loaded, load
from opcheck.capture.child.recipes import pipelines
from opcheck.capture.repository import FolderWeights, Repository, fetch
from opcheck.common.errors import InputError, ModelLoadError, UsageError

T5: dict[str, Any] = {
    "architectures": ["T5ForConditionalGeneration"],
    "model_type": "t5",
    "d_ff": 8,
    "d_model": 8,
    "num_heads": 1,
    "num_layers": 1,
    "vocab_size": 16,
}
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 64,
}
BERT = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 64,
}


def repository(elements: Any = None, **files: Any) -> Repository:
    """A repository of these files: ``config_json`` is config.json, ``a__b_json`` is a/b.json."""
    return Repository(
        name="org/model",
        files={
            name.replace("__", "/").replace("_json", ".json").replace("_py", ".py"): (
                content if isinstance(content, str) else json.dumps(content)
            )
            for name, content in files.items()
        },
        weights=(FolderWeights(elements=elements),) if elements else (),
    )


def loaded(described: Repository, **options: Any) -> Loaded:
    """Load it under its name."""
    return load("org/model", repository=described, **options)


def dtype_of(model: Any) -> torch.dtype:
    """The dtype of the first weight."""
    first: torch.Tensor = next(model.parameters())
    return first.dtype


@pytest.mark.parametrize(
    ("elements", "stated", "asked", "dtype"),
    [
        ({"BF16": 9, "F32": 1}, {}, "", torch.bfloat16),
        ({"BF16": 9}, {"torch_dtype": "float16"}, "", torch.bfloat16),
        ({}, {"dtype": "float16"}, "", torch.float16),
        ({}, {}, "", torch.float32),
        ({"BF16": 9}, {}, "float16", torch.float16),
        # The floats of a quantized checkpoint are its scales.
        (
            {"I32": 9, "F32": 1},
            {"dtype": "float16", "quantization_config": {"quant_method": "gptq", "bits": 4}},
            "",
            torch.float16,
        ),
    ],
)
def test_the_dtype_is_that_of_the_weights(
    elements: dict[str, int], stated: dict[str, Any], asked: str, dtype: torch.dtype
) -> None:
    made = loaded(repository(elements, config_json={**LLAMA, **stated}), dtype=asked)
    assert type(made.model).__name__ == "LlamaForCausalLM"
    assert dtype_of(made.model) == dtype


def test_settings_of_the_command_line_win() -> None:
    made: Any = loaded(repository(config_json=LLAMA), config={"num_hidden_layers": 3}).model
    assert len(made.model.layers) == 3


def test_large_weights_take_no_memory() -> None:
    large = {**LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "vocab_size": 128256}
    made: Any = loaded(repository({"BF16": 1}, config_json=large)).model
    assert made.lm_head.weight.is_meta


def test_the_generation_config_of_the_repository_is_used() -> None:
    made = loaded(repository(config_json=LLAMA, generation_config_json={"top_p": 0.5}))
    model: Any = made.model
    assert model.generation_config.top_p == 0.5
    assert [call.name for call in calls(made, ())] == ["forward", "generate(max_new_tokens=3, do_sample=True)"]


@pytest.mark.parametrize(
    ("stated", "start"),
    [
        ({}, ", decoder_start_token_id=0"),
        ({"pad_token_id": 3}, ", decoder_start_token_id=3"),
        ({"decoder_start_token_id": 2}, ""),
        ({"bos_token_id": 2}, ""),
    ],
)
def test_a_decoder_begins_with_padding_where_nothing_says_with_what(stated: dict[str, int], start: str) -> None:
    made = loaded(repository(config_json={**T5, **stated}))
    assert calls(made, ())[-1].name == f"generate(max_new_tokens=3{start})"


class Staged(nn.Module):
    """As Bark: its stages have a forward pass, and it has none."""

    def can_generate(self) -> bool:
        """Return that it has more to call than its forward pass."""
        return True

    def generate(self, max_new_tokens: int = 1) -> None:
        """Generate nothing."""


def test_a_model_without_a_forward_pass_is_called_for_what_it_has() -> None:
    made = as_loaded(Staged(), ((), {}), as_used=True)
    assert [call.name for call in calls(made, ())] == ["generate(max_new_tokens=3)"]


def test_a_model_of_timm() -> None:
    settings = {"architecture": "resnet18", "num_classes": 7, "pretrained_cfg": {"input_size": [3, 64, 64]}}
    made = loaded(repository({"F16": 1}, config_json=settings))
    model: Any = made.model
    assert (model.num_classes, dtype_of(model)) == (7, torch.float16)
    assert inputs_for(made).specs == ("1x3x64x64:float16",)


def test_a_model_of_diffusers() -> None:
    settings = {"_class_name": "UNet2DModel", "block_out_channels": [32], "norm_num_groups": 8,
                "down_block_types": ["DownBlock2D"], "up_block_types": ["UpBlock2D"], "sample_size": 8}  # fmt: skip
    assert type(loaded(repository(config_json=settings)).model).__name__ == "UNet2DModel"


def test_sentence_transformers_pool() -> None:
    pytest.importorskip("sentence_transformers")
    modules = [
        {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "path": "2_Dense", "type": "sentence_transformers.models.Dense"},
        {"idx": 3, "path": "3_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    made = loaded(
        repository(
            modules_json=modules,
            config_json=BERT,
            **{
                "1_Pooling__config_json": {"word_embedding_dimension": 16},
                "2_Dense__config_json": {
                    "in_features": 16,
                    "out_features": 4,
                    "activation_function": "torch.nn.modules.activation.Tanh",
                },
            },
        ),
        real=True,
    )
    model: Any = made.model
    inputs = inputs_for(made)
    assert inputs.specs == ("input_ids=1x128:int64",)
    vector = model.eval()(**inputs.kwargs)
    assert vector.shape == (1, 4)
    assert torch.allclose(vector.norm(), torch.tensor(1.0))


# peft reads a property that transformers 5 renames.
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_an_adapter_is_put_into_its_base() -> None:
    pytest.importorskip("peft")
    settings = {"peft_type": "LORA", "base_model_name_or_path": "a/b", "r": 2, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}  # fmt: skip
    adapter = Repository(
        name="org/adapter",
        files={"adapter_config.json": json.dumps(settings)},
        base=repository({"BF16": 1}, config_json=LLAMA),
    )
    made = loaded(adapter)
    model: Any = made.model
    assert [name for name, _ in model.named_modules() if name.endswith("lora_A.default")]
    assert inputs_for(made).specs == ("input_ids=1x128:int64",)
    assert [call.name.partition("(")[0] for call in calls(made, ())] == ["forward", "generate"]


CODE: dict[str, Any] = {
    "config_json": {
        "model_type": "mine",
        "architectures": ["Mine"],
        "auto_map": {"AutoConfig": "mine.Settings", "AutoModel": "mine.Mine"},
    },
    "mine_py": """
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel


class Settings(PretrainedConfig):
    model_type = "mine"


class Mine(PreTrainedModel):
    config_class = Settings

    def __init__(self, config):
        super().__init__(config)
        self.layer = nn.Linear(2, 2)
        self.post_init()
""",
}


def test_code_of_the_repository_runs_only_if_it_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import dynamic_module_utils

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path))
    with pytest.raises(ModelLoadError, match="needs Python code of its own repository") as raised:
        loaded(repository(**CODE))
    assert "--trust-remote-code" in raised.value.hint
    for name, text in repository(**CODE).files.items():
        (tmp_path / name).write_text(text)
    made = loaded(fetch(str(tmp_path), trusted=True))
    assert type(made.model).__name__ == "Mine"


PIPELINE = {"_class_name": "DDPMPipeline"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config_json": {"model_type": "bert", "architectures": ["NoModel"]}}, "has no NoModel"),
        ({"config_json": {"model_type": "no_type"}}, "cannot read the configuration"),
        ({"config_json": {"_class_name": "NoModel"}}, "diffusers .* has no NoModel"),
        ({"config_json": {"architecture": "no_model"}}, "timm .* has no no_model"),
        ({"model_index_json": {"_class_name": "NoPipeline"}}, "diffusers .* has no NoPipeline"),
        ({"modules_json": {}}, "modules.json of org/model cannot be read"),
        ({"modules_json": []}, "it names no module"),
        ({"modules_json": [{"path": "../x"}]}, "leads out of its folder"),
        ({"modules_json": [{"path": "/etc"}]}, "leads out of its folder"),
        ({"model_index_json": {"_class_name": "utils"}}, "diffusers .* has no utils"),
        ({"model_index_json": {**PIPELINE, "unet": ["diffusers", "UNet2DModel"]}}, "there is no unet/config.json"),
        (
            {"model_index_json": {**PIPELINE, "unet": ["nothing", "No"]}, "unet__config_json": {"a": 1}},
            "diffusers .* has no No",
        ),
        ({"model_index_json": {**PIPELINE, "unet": ["diffusers"]}}, "TypeError|missing"),
        # Wrong types, names of what is no model, names with control characters.
        ({"config_json": {**BERT, "architectures": "BertModel"}}, "architectures is no list"),
        ({"config_json": {**BERT, "architectures": ["Trainer"]}}, "has no Trainer"),
        ({"config_json": {**BERT, "architectures": ["\x1b[31m\nx"]}}, "has no .x1b.31m x"),
        ({"config_json": {"model_type": "zz", "auto_map": ["a.B"]}}, "auto_map is no mapping"),
        ({"config_json": {"model_type": "zz", "auto_map": "a.B"}}, "auto_map is no mapping"),
        ({"config_json": {**BERT, "hidden_size": "16"}}, "expected int, got str"),
        ({"config_json": {**BERT, "hidden_size": -16}}, "negative dimension"),
        ({"config_json": {**BERT, "hidden_size": 2**40}}, "overflowed"),
        ({"config_json": {**BERT, "dtype": [1]}}, "IndexError"),
        ({"config_json": {**BERT, "quantization_config": "gptq"}}, "AttributeError"),
        ({"config_json": BERT, "generation_config_json": [1]}, "TypeError"),
        ({"config_json": {"_class_name": "ModelMixin"}}, "diffusers .* has no ModelMixin"),
        ({"config_json": {"_class_name": "DiffusionPipeline"}}, "has no DiffusionPipeline"),
        ({"config_json": {"_class_name": "is_torch_available"}}, "has no is_torch_available"),
        ({"model_index_json": {"_class_name": "DDPMScheduler"}}, "has no DDPMScheduler"),
        ({"model_index_json": {"_class_name": "ModularPipeline"}}, "has no ModularPipeline"),
        ({"model_index_json": {**PIPELINE, "unet": ["os", "system"]}, "unet__config_json": {"a": 1}}, "has no system"),
        ({"config_json": {"architecture": "hf-hub:org/other"}}, "timm .* has no hf-hub:org/other"),
        # A file that torch.load would read.
        (
            {"config_json": {"architecture": "resnet18", "model_args": {"checkpoint_path": __file__}}},
            "load weights or code from another file",
        ),
    ],
)
def test_what_no_library_knows_is_three_lines(files: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelLoadError, match=message) as raised:
        loaded(repository(**files))
    assert len(str(raised.value).splitlines()) == 3


def test_a_module_that_would_run_code_of_another_folder_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    ran = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(ran)!r}, 'w')\n")
    config = {"model_type": "zz", "auto_map": {"AutoConfig": "evil.C", "AutoModel": "evil.M"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    trusts = {"trust_remote_code": True}
    settings = {"model_name_or_path": str(tmp_path), "model_args": trusts, "config_args": trusts}
    kind = "sentence_transformers.models.Transformer"
    modules = [{"path": "", "type": kind}, {"path": "1", "type": kind}]
    files = {"modules_json": modules, "config_json": BERT, "1__config_json": settings}
    with pytest.raises(ModelLoadError, match="load weights or code from another file"):
        loaded(repository(**files))
    assert not ran.exists()


@pytest.mark.parametrize("name", ["..", ".", "org/..", "b/x/..", "a/", "~", "a\\..", "c" * 300, "a\0b", "org/a b"])
def test_a_scratch_folder_is_where_its_maker_put_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "config.json").write_text("mine")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    described = msgspec.structs.replace(repository(config_json=LLAMA), name=name)
    with pretrained._unpack(described) as folder:
        (scratch,) = [path for path in tmp_path.iterdir() if path.is_dir()]
        assert folder.parent == scratch
        assert json.loads((folder / "config.json").read_text()) == LLAMA
        assert (tmp_path / "config.json").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert (tmp_path / "config.json").read_text() == "mine"


@pytest.mark.parametrize("path", ["../config.json", "../../mine", "/etc/mine", "a/../../../mine", "~/mine", "a\0b"])
def test_a_file_of_a_repository_is_written_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    described = Repository(name="org/model", files={"config.json": "{}", path: "theirs"})
    with pytest.raises(ModelLoadError, match="leads out of its folder") as raised:
        loaded(described)
    assert len(str(raised.value).splitlines()) == 3
    assert (tmp_path / "mine").read_text() == "mine"
    assert not list((tmp_path / "scratch").iterdir())


def test_an_input_that_no_machine_holds_is_refused() -> None:
    settings = {"architecture": "resnet18", "pretrained_cfg": {"input_size": [3, 10**6, 10**6]}}
    with pytest.raises(InputError, match="1x3x1000000x1000000 is more than opcheck makes"):
        inputs_for(loaded(repository(config_json=settings)))


def test_a_detector_finds_boxes() -> None:
    settings = {"model_type": "yolos", "architectures": ["YolosForObjectDetection"], "hidden_size": 16,
                "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "image_size": [64, 96]}  # fmt: skip
    made = loaded(repository(config_json=settings), real=True)
    names = calls(made, ())
    assert [call.name for call in names] == ["forward", "post_process_object_detection of the processor"]
    inputs = inputs_for(made)
    assert "as YolosImageProcessor" in inputs.note
    model: Any = made.model
    boxes: Any = None
    with torch.no_grad():
        for call in names:
            boxes = call.run(model.eval(), (inputs.args, inputs.kwargs), boxes)
    assert "boxes" in boxes[0]


# -- --call -----------------------------------------------------------------------------------------------------------


def test_a_call_is_a_method_with_arguments() -> None:
    assert parse("generate:max_new_tokens=4,do_sample=true,bad_words_ids=[[1,2],[3]]") == (
        "generate",
        {"max_new_tokens": 4, "do_sample": True, "bad_words_ids": [[1, 2], [3]]},
    )
    assert parse("forward") == ("forward", {})


@pytest.mark.parametrize("text", ["", "a b", "generate:3", "generate:a=[1", "generate:a b=1", ":x=1"])
def test_a_call_that_does_not_parse(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(text)
    assert raised.value.hint


class Net(nn.Module):
    """A model with a method beside its forward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return it."""
        return x

    def encode(self, x: torch.Tensor, scale: int = 1) -> torch.Tensor:
        """Scale it."""
        return x * scale


def test_a_method_is_called_with_the_inputs_and_the_arguments() -> None:
    model = Net()
    made = Loaded(model=model, inputs=None, family="user", packages={})
    (call,) = calls(made, ("encode:scale=3",))
    assert call.name == "encode(scale=3)"
    assert call.run(model, ((), {"x": torch.ones(1)}), None).item() == 3
    assert [each.name for each in calls(made, ())] == ["forward"]
    with pytest.raises(InputError, match="Net has no method 'decode'") as raised:
        calls(made, ("decode",))
    assert "encode" in raised.value.hint


def test_the_files_are_gone_after_the_model_is_built_and_no_folder_was_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    listed: list[Any] = []

    def listing(path: Any = ".") -> Any:
        listed.append(path)
        return os.scandir(path)

    # What lists a folder by its descriptor cannot be kept (worker/dependency_tracking.py).
    monkeypatch.setattr(shutil, "rmtree", listing)
    loaded(repository(config_json=LLAMA, unet__config_json={}))
    assert not list(tmp_path.iterdir())
    assert not listed


def test_weights_of_diffusers_are_cast_as_its_loading_casts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diffusers import CogVideoXTransformer3DModel, WanTransformer3DModel

    # diffusers empties the cache of a Mac's device after it has loaded on the CPU.
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: None)
    small = {"num_attention_heads": 1, "attention_head_dim": 32, "num_layers": 1}
    made: list[nn.Module] = [
        WanTransformer3DModel(**small, text_dim=8, ffn_dim=8, in_channels=4, out_channels=4),
        CogVideoXTransformer3DModel(**small, text_embed_dim=8, time_embed_dim=2),
    ]
    for number, model in enumerate(made):
        folder = str(tmp_path / str(number))
        model.save_pretrained(folder)  # type: ignore[operator]  # of diffusers
        expected = type(model).from_pretrained(folder, torch_dtype=torch.bfloat16)  # type: ignore[attr-defined]
        libraries.cast(model, torch.bfloat16)
        assert {name: each.dtype for name, each in (*model.named_parameters(), *model.named_buffers())} == {
            name: each.dtype for name, each in (*expected.named_parameters(), *expected.named_buffers())
        }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "strength", "steps"), [("Text", None, 2), ("Img2Img", 0.8, 3), ("Img2Img", 0.3, 7), ("Img2Img", 1.0, 2)]
)
def test_a_pipeline_that_starts_from_a_picture_takes_two_steps(name: str, strength: float | None, steps: int) -> None:
    parameter = inspect.Parameter("strength", inspect.Parameter.KEYWORD_ONLY, default=strength)
    given = {"strength": parameter} if strength else {}
    assert pipelines._steps(given) == steps, name
