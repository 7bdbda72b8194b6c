"""What ``opcheck weights`` answers for files, folders, workflows and a hub on the loopback address."""

from __future__ import annotations

import ast
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from opcheck.capture import repository
from tests.command_line import CommandLine
from tests.loopback_hub import serving
from tests.weights import making

FP8 = {"a.weight": ("F8_E4M3", [4, 4]), "a.scale": ("F32", [1])}
HALF = {"a.weight": ("F16", [4, 4])}
NO_FLOAT8 = "Undefined type Float8_e4m3fn"


@pytest.fixture
def answer(opcheck: CommandLine) -> Any:
    """Runs the verb and returns its JSON."""

    def run(source: str | Path, torch: str = "2.13", *more: str) -> dict[str, Any]:
        result = opcheck("weights", str(source), "--torch", torch, "-f", "json", *more)
        assert result.code in {0, 1, 3}, result.err
        document: dict[str, Any] = json.loads(result.out)
        failing = document["outcome"] in {"raises_at_load", "raises_at_run", "wrong"}
        assert result.code == (1 if failing else 3 if document["outcome"] == "unknown" else 0)
        return document

    return run


def folder(path: Path, **files: Any) -> Path:
    """A folder; ``a__b_safetensors`` is ``a/b.safetensors``."""
    for name, content in files.items():
        stem, _, suffix = name.replace("__", "/").rpartition("_")
        file = path / f"{stem}.{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


@pytest.mark.parametrize(
    ("tensors", "torch", "outcome", "since", "text"),
    [
        (HALF, "2.13", "loads", "1.13", ""),
        (FP8, "2.13", "raises_at_run", "2.15", NO_FLOAT8),
        (FP8, "2.15", "loads", "2.15", ""),
        (FP8, "2.0", "raises_at_load", "2.15", "has no attribute 'float8_e4m3fn'"),
        ({"a": ("F8_E5M2", [4])}, "2.15", "raises_at_run", "", "Float8_e5m2"),
        ({"a": ("F64", [4])}, "2.15", "raises_at_load", "", "doesn't support float64"),
        ({"a": ("BF16", [4])}, "2.1", "raises_at_load", "2.3", "BFloat16 is not supported on MPS"),
        ({"a": ("BF16", [4])}, "2.9", "loads", "2.3", ""),
        ({"a": ("F6_E2M3", [4])}, "2.15", "unknown", "", ""),
    ],
)
def test_a_dtype_decides_by_release(
    answer: Any, tmp_path: Path, tensors: Any, torch: str, outcome: str, since: str, text: str
) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(making.safetensors(tensors))
    document = answer(path, torch)
    assert (document["format"], document["method"]) == ("safetensors", "")
    assert (document["outcome"], document["since"]) == (outcome, since)
    assert text in document["text"]
    assert bool(document["instead"]) == (outcome not in {"loads", "unknown"})


@pytest.mark.parametrize(
    ("kind", "torch", "flags", "outcome"),
    [
        ("Q4_K", "2.13", (), "loads"),
        ("Q4_K", "2.5", (), "wrong"),
        ("Q4_K", "2.4", (), "raises_at_run"),
        ("Q4_K", "2.4", ("--fallback",), "runs_on_cpu"),
        ("Q8_0", "2.5", (), "loads"),
        ("Q8_0", "2.4", (), "loads"),
        ("IQ2_XS", "2.13", (), "raises_at_load"),
    ],
)
def test_the_blocks_of_a_gguf_file_decide(
    answer: Any, tmp_path: Path, kind: str, torch: str, flags: Any, outcome: str
) -> None:
    path = tmp_path / "x.gguf"
    tensors = {"a": (kind, [256, 4]), "b": ("F32", [4])}
    path.write_bytes(making.gguf(tensors, general__architecture="flux"))
    document = answer(path, torch, *flags)
    assert document["format"] == "gguf"
    assert document["outcome"] == outcome
    assert document["dtypes"] == {kind: 1024, "float32": 4}


def test_transformers_decides_for_models_of_language(answer: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(making.gguf({"a": ("Q4_K", [256])}, general__architecture="llama"))
    dense = answer(path)
    assert dense["outcome"] == "casts"
    assert dense["memory"]["loaded"] == 512
    path.write_bytes(making.gguf({"a": ("Q4_K", [256])}, general__architecture="nothing"))
    refused = answer(path)
    assert refused["outcome"] == "raises_at_load"
    assert "GGUF model with architecture nothing is not supported yet." in refused["text"]


def test_an_onnx_model_is_no_model_of_torch(answer: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(making.onnx({"w": (1, [2])}))
    document = answer(path)
    assert (document["format"], document["outcome"]) == ("onnx", "unknown")
    assert "onnxruntime" in document["instead"]


def test_the_line_that_converts_a_file_is_named(answer: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(making.safetensors({"a.weight": ("F8_E4M3", [4])}))
    line = answer(path)["instead"].partition("safetensors.torch: ")[2]
    assert line.endswith("'x-bfloat16.safetensors')")
    ast.parse(line)
    scaled = {"a.weight": ("F8_E4M3", [4]), "a.scale_weight": ("F32", [1])}
    path.write_bytes(making.safetensors(scaled))
    document = answer(path)
    assert "scales" in document["instead"]
    assert "save_file" not in document["instead"]


def test_a_pickle_that_calls_the_system_is_not_to_be_loaded(answer: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(making.archive({"x/data.pkl": making.calling(os.getcwd)}))
    document = answer(path)
    assert document["outcome"] == "raises_at_load"
    assert document["instead"] == "do not load it: loading would call posix.getcwd"


# -- folders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "torch", "outcome"),
    [
        ("eetq", "2.13", "raises_at_load"),
        ("fp8", "2.13", "casts"),
        ("mxfp4", "2.13", "casts"),
        ("bitsandbytes", "2.13", "loads"),
        ("hqq", "2.13", "loads"),
        ("hqq", "2.6", "wrong"),
        ("gptq", "2.15", "loads"),
        ("gptq", "2.9", "unknown"),
        ("sinq", "2.13", "runs_on_cpu"),
        ("a new one", "2.13", "unknown"),
    ],
)
def test_the_method_of_a_configuration_decides(
    answer: Any, tmp_path: Path, method: str, torch: str, outcome: str
) -> None:
    config = {"quantization_config": {"quant_method": method}}
    weights = making.safetensors({"a": ("U8", [4])})
    document = answer(folder(tmp_path, config_json=config, model_safetensors=weights), torch)
    assert document["format"] == "transformers"
    assert document["method"] == method
    assert document["outcome"] == outcome


@pytest.mark.parametrize(
    ("names", "method"),
    [
        (["a.qweight", "a.qzeros", "a.scales", "a.g_idx"], "gptq"),
        (["a.qweight", "a.qzeros", "a.scales"], "awq"),
        (["a.weight", "a.weight.absmax", "a.weight.quant_state.bitsandbytes__nf4"], "bitsandbytes"),
        (["a.weight", "a.weight_scale_inv"], "fp8"),
        (["a.qweight", "a.wscales", "a.smooth_factor"], "svdquant"),
        (["a.weight", "a.bias"], ""),
    ],
)
def test_the_names_of_tensors_show_a_method(answer: Any, tmp_path: Path, names: list[str], method: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(making.safetensors({name: ("U8", [4]) for name in names}))
    assert answer(path)["method"] == method


def test_from_pretrained_casts_to_the_dtype_of_the_configuration(answer: Any, tmp_path: Path) -> None:
    weights = making.safetensors({"a": ("F64", [4])})
    files = {"config_json": {"dtype": "float32"}, "model_safetensors": weights}
    assert answer(folder(tmp_path, **files))["outcome"] == "casts"


def test_the_files_of_an_index_are_one_model(answer: Any, tmp_path: Path) -> None:
    index = {"weight_map": {"a": "x-1.safetensors", "b": "x-2.safetensors", "c": "x-1.safetensors"}}
    half = making.safetensors(HALF)
    files = {"x-1_safetensors": half, "x-2_safetensors": half, "model.safetensors.index_json": index}
    folder(tmp_path, **files)
    for source in (tmp_path, tmp_path / "model.safetensors.index.json"):
        document = answer(source)
        assert document["bytes"] == 64
        assert len(document["files"]) == 2


@pytest.mark.parametrize("name", ["/etc/passwd", "../x.safetensors", "missing.safetensors", "a\\b"])
def test_an_index_names_files_next_to_it(opcheck: CommandLine, tmp_path: Path, name: str) -> None:
    folder(tmp_path, **{"x.index_json": {"weight_map": {"a": name}}})
    result = opcheck("weights", str(tmp_path / "x.index.json"))
    assert result.code == 2
    assert len(result.err.splitlines()) == 3


def test_a_pipeline_is_as_its_worst_part_and_names_the_file_that_works(answer: Any, tmp_path: Path) -> None:
    index = {"unet": ["diffusers", "A"], "vae": ["diffusers", "B"], "scheduler": ["diffusers", "C"]}
    half, double = making.safetensors(HALF), making.safetensors({"a": ("F64", [4])})
    document = answer(
        folder(
            tmp_path,
            model_index_json=index,
            unet__diffusion_pytorch_model_safetensors=half,
            vae__diffusion_pytorch_model_safetensors=double,
            **{"vae__diffusion_pytorch_model.fp16_safetensors": half},
        )
    )
    assert (document["format"], document["outcome"]) == ("diffusers", "raises_at_load")
    assert document["instead"].startswith("vae/diffusion_pytorch_model.fp16.safetensors")


def test_diffusers_checks_for_itself(answer: Any, tmp_path: Path) -> None:
    config = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}
    weights = making.safetensors({"a": ("I8", [4])})
    folder(tmp_path, model_index_json={"unet": ["diffusers", "A"]}, unet__config_json=config)
    folder(tmp_path, unet__diffusion_pytorch_model_safetensors=weights)
    document = answer(tmp_path)
    assert document["outcome"] == "raises_at_load"
    assert "No GPU found. A GPU is needed for quantization." in document["text"]


def test_an_adapter_is_one(answer: Any, tmp_path: Path) -> None:
    weights = making.safetensors({"base.lora_A.weight": ("F32", [4])})
    config = {"base_model_name_or_path": "org/name", "peft_type": "LORA"}
    document = answer(folder(tmp_path, adapter_config_json=config, adapter_model_safetensors=weights))
    assert (document["format"], document["outcome"]) == ("adapter", "loads")


def test_the_memory_is_that_of_the_weights(answer: Any, tmp_path: Path) -> None:
    # The file has none of its eight billion elements: of a hub's file the header alone is read.
    entry = {"dtype": "F16", "shape": [1 << 30], "data_offsets": [0, 0]}
    content = making.framed(json.dumps({f"a{n}": entry for n in range(8)}).encode())
    with serving(org__large={"model.safetensors": content}) as hub:
        document = _on(hub.address, answer, "org/large")
    assert document["memory"]["loaded"] == 16 << 30
    assert document["memory"]["loading"] == 18 << 30
    assert document["memory"]["smallest_mac"] == 32
    assert not document["memory"]["macs"]["24 GB"]


# -- a hub -----------------------------------------------------------------------------------------


def _on(address: str, answer: Any, name: str) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        from huggingface_hub import constants

        patch.setattr(constants, "ENDPOINT", address)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
        patch.setattr("huggingface_hub.hf_api.constants.ENDPOINT", address)
        document: dict[str, Any] = answer(name)
        return document


def test_a_repository_is_read_by_ranges(answer: Any) -> None:
    weights = making.safetensors({"a": ("F8_E4M3", [4096, 4096])})
    with serving(org__name={"config.json": {}, "model.safetensors": weights}) as hub:
        document = _on(hub.address, answer, "org/name")
    assert (document["format"], document["outcome"]) == ("transformers", "raises_at_run")
    assert document["bytes"] == 16 << 20
    assert hub.sent < 1 << 18


def test_a_gguf_repository_is_read_by_one_of_its_files(answer: Any) -> None:
    files = {
        f"m-{kind}.gguf": making.gguf({"a": (kind, [256])}, words=40_000, general__architecture="flux")
        for kind in ("Q2_K", "Q8_0")
    }
    with serving(org__name=files) as hub:
        assert _on(hub.address, answer, "org/name")["dtypes"] == {"Q8_0": 256}
        assert _on(hub.address, answer, "org/name/m-Q2_K.gguf")["dtypes"] == {"Q2_K": 256}


def test_a_repository_that_is_not_there_is_an_error(opcheck: CommandLine) -> None:
    with serving() as hub, pytest.raises(AssertionError, match="org/none"):
        _on(hub.address, lambda name: _refused(opcheck, name), "org/none")


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [("FIRST_ANSWER", 0.0, "its answer is not complete after 0 s"), ("_MOST_ANSWER", 9, "an answer of more than")],
)
def test_a_hub_that_sends_without_end_is_an_error(
    opcheck: CommandLine, monkeypatch: pytest.MonkeyPatch, limit: str, value: float, message: str
) -> None:
    monkeypatch.setattr(repository, limit, value)
    with serving(org__name={"config.json": {}}) as hub, pytest.raises(AssertionError, match=message):
        _on(hub.address, lambda name: _refused(opcheck, name), "org/name")


def _refused(opcheck: CommandLine, name: str) -> dict[str, Any]:
    result = opcheck("weights", name)
    assert result.code == 2
    assert len(result.err.splitlines()) == 3
    raise AssertionError(result.err)


# -- workflows -------------------------------------------------------------------------------------

EDITOR = {
    "nodes": [
        {"id": 1, "type": "UNETLoader", "widgets_values": ["flux1-dev.safetensors", "fp8_e4m3fn"]},
        {"id": 2, "type": "VAELoader", "widgets_values": ["ae.safetensors"]},
        {"id": 3, "type": "UnetLoaderGGUF", "mode": 4, "widgets_values": ["muted-Q4_K.gguf"]},
        {"id": 4, "type": "KSampler", "widgets_values": [1, "fixed", 20]},
    ],
    "links": [],
}
API = {
    "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "sd_xl_base_fp16.safetensors"}},
    "5": {"class_type": "UnetLoaderGGUF", "inputs": {"unet_name": "flux\\flux1-dev-Q4_K_S.gguf"}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a cat", "clip": ["4", 1]}},
}
NESTED = {"nodes": [], "definitions": {"subgraphs": [{"nodes": EDITOR["nodes"][:1]}]}}


@pytest.mark.parametrize(
    ("workflow", "torch", "outcome", "files"),
    [
        (EDITOR, "2.13", "raises_at_run", 2),
        (EDITOR, "2.15", "unknown", 2),
        (API, "2.13", "loads", 2),
        (API, "2.5", "wrong", 2),
        ({"prompt": API}, "2.5", "wrong", 2),
        (NESTED, "2.13", "raises_at_run", 1),
    ],
)
def test_a_workflow_is_judged_by_the_files_that_it_names(
    answer: Any, tmp_path: Path, workflow: Any, torch: str, outcome: str, files: int
) -> None:
    path = tmp_path / "workflow.json"
    path.write_text(json.dumps(workflow))
    document = answer(path, torch)
    assert (document["format"], document["outcome"]) == ("comfyui", outcome)
    assert len(document["files"]) == files
    assert any("judged by name" in each for each in document["not_checked"])


def test_a_file_next_to_a_workflow_is_read(answer: Any, tmp_path: Path) -> None:
    content = making.safetensors({"a": ("F64", [4])})
    folder(tmp_path, workflow_json=EDITOR, models__vae__ae_safetensors=content)
    document = answer(tmp_path / "workflow.json", "2.15")
    assert document["outcome"] == "raises_at_load"
    assert document["dtypes"] == {"float64": 4}


# -- methods ---------------------------------------------------------------------------------------


def test_the_page_has_ten_lines_and_its_headline_is_the_outcome(opcheck: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(making.safetensors(FP8))
    result = opcheck("weights", str(tmp_path / "x.safetensors"), "--torch", "2.13")
    lines = result.out.splitlines()
    assert "raises at the first call on torch 2.13" in " ".join(" ".join(lines[:3]).split())
    assert len(lines) <= 16
    assert "Evidence" not in result.out
    assert "Evidence" in opcheck("weights", str(tmp_path / "x.safetensors"), "-v").out


@pytest.mark.parametrize(("name", "problem"), [("pipe.pt", "is not a regular file"), ("none.pt", "there is no file")])
def test_a_pipe_is_there_and_no_regular_file(opcheck: CommandLine, tmp_path: Path, name: str, problem: str) -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no pipes with names")
    os.mkfifo(tmp_path / "pipe.pt")
    result = opcheck("weights", str(tmp_path / name))
    assert (result.code, len(result.err.splitlines())) == (2, 3)
    assert problem in result.err


def test_nothing_named_is_an_error(opcheck: CommandLine) -> None:
    for arguments in ((), ("nothing.safetensors",), ("not a name",)):
        result = opcheck("weights", *arguments)
        assert result.code == 2
        assert len(result.err.splitlines()) == 3
