"""What is read of a model on a hub, in a folder or in a recipe; a hub of our own answers on the loopback address."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, constants

from opcheck.capture import repository
from opcheck.capture.child.extensions import prepare_torchvision
from opcheck.capture.repository import fetch, is_repository
from opcheck.common import caches
from opcheck.common.errors import ModelLoadError
from tests.loopback_hub import Hub, safetensors, serving

BERT = {"model_type": "bert", "architectures": ["BertModel"]}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with some repositories, and caches of its own."""
    with serving(
        org__plain={
            "config.json": BERT,
            "model.safetensors": safetensors(a=("BF16", [3, 4]), b=("F32", [2])),
            "tokenizer.json": b"{}",
            "modeling.py": b"raise SystemExit",
        },
        org__adapter={"adapter_config.json": {"base_model_name_or_path": "org/plain", "peft_type": "LORA"}},
        org__gguf={"model-q4.gguf": b"", "README.md": b""},
        org__broken={"config.json": b"["},
    ) as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.address)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", served.address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield served


def test_configurations_and_headers_are_read_and_no_weights(hub: Hub) -> None:
    read = fetch("org/plain")
    assert read.settings("config.json") == BERT
    assert read.commit == hub.commit("org/plain")
    assert list(read.files) == ["config.json"]
    assert [each.elements for each in read.weights] == [{"BF16": 12, "F32": 2}]
    # The file is longer than what was sent of it, and the tokenizer was not asked for.
    assert hub.sent < len(safetensors()) < 200_100
    assert not [line for line in hub.requests if "tokenizer" in line or ".py" in line]
    assert "no weights" in read.source()


def test_a_second_audit_asks_for_the_commit_alone(hub: Hub) -> None:
    first = fetch("org/plain")
    before = len(hub.requests)
    assert fetch("org/plain@main") == first
    assert [line for line in hub.requests[before:] if "agent" not in line] == [
        "GET /api/models/org/plain/revision/main"
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"files": {"config.json": "{}", "../../mine/config.json": "{}"}},
        {"files": {"config.json": "{}", "/etc/config.json": "{}"}},
        {"files": {"config.json": "{}", "modeling.py": "raise SystemExit"}},
        {"name": "org/other"},
        {"trusted": True},
        {"base": {"name": "b/x/..", "files": {"config.json": "{}"}}},
        {"files": 1},
    ],
    ids=str,
)
def test_an_entry_of_the_cache_that_this_program_does_not_write_is_no_entry(
    hub: Hub, tmp_path: Path, changes: dict[str, Any]
) -> None:
    first = fetch("org/plain")
    for entry in (tmp_path / "cache/opcheck/hub").iterdir():
        content = json.loads(caches.load(entry) or b"")
        caches.store(entry, json.dumps({**content, **changes}).encode())
    assert fetch("org/plain") == first
    assert len([line for line in hub.requests if "config.json" in line]) >= 2


def test_a_new_commit_is_read_anew(hub: Hub) -> None:
    fetch("org/plain")
    hub.repositories["org/plain"]["config.json"] = {**BERT, "hidden_size": 8}
    assert fetch("org/plain").settings("config.json")["hidden_size"] == 8


def test_code_is_read_only_where_it_may_run(hub: Hub) -> None:
    assert "modeling.py" in fetch("org/plain", trusted=True).files
    assert "modeling.py" not in fetch("org/plain").files


def test_an_adapter_brings_its_base(hub: Hub) -> None:
    read = fetch("hf:org/adapter")
    assert read.kind == "adapter_config.json"
    assert read.base is not None
    assert read.base.settings("config.json") == BERT
    assert "org/plain" in read.source()


@pytest.mark.parametrize("name", ["org/plain", "org/plain@main"])
def test_without_the_network_what_was_read_before_is_used(hub: Hub, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    first = fetch(name)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch(name) == first
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert fetch(name) == first


@pytest.mark.parametrize(
    ("name", "refusal", "message"),
    [
        ("org/nothing", None, "has no model org/nothing, or it is private"),
        ("org/plain@v9", None, "has no revision 'v9'"),
        ("org/gguf", None, "contains no configuration of a model (it has README.md, model-q4.gguf)"),
        ("org/broken", None, "config.json of org/broken cannot be read"),
        ("org/plain", (401, "GatedRepo"), "is gated"),
        ("org/plain", (403, "GatedRepo"), "is gated"),
        ("org/plain", (401, ""), "does not accept the token"),
        ("org/plain", (403, ""), "may not read org/plain"),
        ("org/plain", (503, ""), "answers 503"),
        ("hf:a/b/c", None, "not a name on the hub: 'a/b/c'"),
    ],
)
def test_each_failure_is_three_lines(hub: Hub, name: str, refusal: tuple[int, str] | None, message: str) -> None:
    if refusal:
        hub.refusals["org/plain"] = refusal
    with pytest.raises(ModelLoadError) as raised:
        fetch(name).settings("config.json")
    assert message in raised.value.message
    assert raised.value.context
    assert raised.value.hint
    assert len(str(raised.value).splitlines()) == 3


def test_offline_without_anything_kept_says_so(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelLoadError, match="HF_HUB_OFFLINE is set"):
        fetch("org/plain")
    assert not hub.requests


def test_a_hub_that_does_not_answer_is_named(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelLoadError, match=r"http://127\.0\.0\.1:9 does not answer"):
        fetch("org/plain")


def test_what_huggingface_hub_cannot_take_is_named(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any, **_options: Any) -> None:
        raise AttributeError("'list' object has no attribute 'get'")

    monkeypatch.setattr(HfApi, "model_info", broken)
    with pytest.raises(ModelLoadError, match="the hub sent cannot be used: AttributeError") as raised:
        fetch("org/plain")
    assert len(str(raised.value).splitlines()) == 3


def test_a_hub_that_never_ends_its_answer_is_left(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(HfApi, "model_info", lambda *_arguments, **_options: released.wait(60))
    monkeypatch.setattr(repository, "FIRST_ANSWER", 0.05)
    with pytest.raises(
        ModelLoadError, match=r"does not answer \(TimeoutError: its answer is not complete after 0\.05 s"
    ):
        fetch("org/plain")
    released.set()


def test_a_hub_whose_files_never_end_is_left(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_arguments, **_options: released.wait(60))
    monkeypatch.setattr(repository, "WHOLE", 2.0)
    with pytest.raises(ModelLoadError, match="TimeoutError: its answer is not complete"):
        fetch("org/plain")
    released.set()


@pytest.mark.parametrize("most", [20, 1 << 20])
def test_an_answer_that_is_too_long_is_not_read_to_its_end(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(repository, "_MOST_ANSWER", most)
    if most > 20:
        assert fetch("org/plain").files
        return
    with pytest.raises(ModelLoadError, match="cannot be used: DocumentError: an answer of more than") as raised:
        fetch("org/plain")
    assert len(str(raised.value).splitlines()) == 3


def test_what_the_program_itself_downloads_has_no_limit(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "_MOST_ANSWER", 8)
    with pytest.raises(ModelLoadError, match="an answer of more than"):
        fetch("org/plain")
    assert HfApi().model_info("org/plain").id == "org/plain"


def test_a_list_of_files_leads_out_of_no_repository() -> None:
    names = ["/config.json", "../config.json", "a/../config.json", "c:\\config.json", "a/config.json"]
    assert list(repository._configurations(names, code=False)) == ["a/config.json"]


def _folder(path: Path, **files: Any) -> Path:
    for name, content in files.items():
        file = path / name.replace("__", "/").replace("_json", ".json").replace("_st", ".safetensors")
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def test_a_folder_is_read_as_a_repository(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path,
        model_index_json={"_class_name": "X"},
        unet__config_json={"a": 1},
        unet__model_st=safetensors(a=("F16", [2, 2])),
        onnx__config_json={"b": 1},
    )
    read = fetch(str(folder))
    assert read.kind == "model_index.json"
    assert sorted(read.files) == ["model_index.json", "unet/config.json"]
    assert [(each.folder, each.elements) for each in read.weights] == [("unet", {"F16": 4})]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        b"\0" * 7 + b"\x01{}",
        b"\x05" + b"\0" * 7 + b"{",
        b"\x02" + b"\0" * 7 + b"[]",
        safetensors(a=("F32", [-1])),
        safetensors(a=("F32", ["x"])),  # type: ignore[list-item]  # what a hostile file has
        safetensors(a=("F32", [2**40, 2**40])),
        safetensors(a=("F32", [2**53]), b=("F32", [1])),
        safetensors(a=("F32", [2**63 - 1] * 100_000)),
        b"\xff" * 7 + b"\x7f{}",
    ],
)
def test_a_damaged_header_is_named(tmp_path: Path, content: bytes) -> None:
    folder = _folder(tmp_path, config_json=BERT, model_st=content)
    with pytest.raises(ModelLoadError, match=r"the header of model\.safetensors cannot be read"):
        fetch(str(folder))


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("/nonexistent/base", "is not here: '/nonexistent/base' is neither a folder nor a name"),
        ("no body/x y", "is not here"),
        ("", "names no base model"),
        (".", "its base model . is an adapter, too"),
    ],
)
def test_an_adapter_without_its_base_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str, message: str
) -> None:
    _folder(tmp_path, adapter_config_json={"base_model_name_or_path": base})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelLoadError) as raised:
        fetch(str(tmp_path))
    assert message in raised.value.message
    assert len(str(raised.value).splitlines()) == 3


def test_what_is_there_instead_of_a_configuration_is_named_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "x\x1b[31m\nevil.bin").write_bytes(b"")
    with pytest.raises(ModelLoadError, match="contains no configuration") as raised:
        fetch(str(tmp_path))
    assert len(str(raised.value).splitlines()) == 3
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize("target", ["config.json", "/dev/zero", ""])
def test_links_to_themselves_devices_and_pipes_are_no_configurations(tmp_path: Path, target: str) -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no named pipes in folders")
    if target:
        (tmp_path / "config.json").symlink_to(target)
    else:
        os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ModelLoadError, match="contains no configuration"):
        fetch(str(tmp_path))


def test_an_adapter_whose_base_is_missing_on_the_hub_names_both(hub: Hub, tmp_path: Path) -> None:
    _folder(tmp_path, adapter_config_json={"base_model_name_or_path": "org/nothing"})
    with pytest.raises(ModelLoadError, match=r"the base model of .*: the hub has no model org/nothing"):
        fetch(str(tmp_path))


def test_a_misspelt_name_is_answered_with_a_known_one(hub: Hub) -> None:
    with pytest.raises(ModelLoadError) as raised:
        fetch("google-bert/bert-base-uncase")
    assert "did you mean google-bert/bert-base-uncased?" in raised.value.hint


def test_variants_and_files_of_one_checkpoint_count_once(tmp_path: Path) -> None:
    tensors = safetensors(a=("F32", [5]))
    for name in ("model.safetensors", "model.fp16.safetensors", "model-00001-of-00002.safetensors"):
        (tmp_path / name).write_bytes(tensors)
    (tmp_path / "config.json").write_text("{}")
    assert [each.elements for each in fetch(str(tmp_path)).weights] == [{"F32": 5}]


def test_recipes_stand_for_classes_and_tasks() -> None:
    pipeline = fetch("diffusers:StableDiffusionPipeline")
    assert pipeline.settings("unet/config.json")["cross_attention_dim"] == 768
    assert fetch("transformers:pipeline/text-generation").kind == "config.json"
    assert fetch("recipe:openai-community/gpt2").settings("config.json")["model_type"] == "gpt2"
    for name in ("recipe:no/where", "diffusers:NothingPipeline", "transformers:pipeline/nothing"):
        with pytest.raises(ModelLoadError, match="no recipe"):
            fetch(name)


@pytest.mark.parametrize(
    ("name", "parameters"), [("google/paligemma-3b-mix-224", 2_923_466_480), ("google/gemma-3-4b-it", 4_300_079_472)]
)
def test_a_recipe_whose_pictures_are_not_pooled_builds_the_published_parameters(name: str, parameters: int) -> None:
    torch = pytest.importorskip("torch")
    prepare_torchvision()
    transformers = pytest.importorskip("transformers")
    settings = fetch(f"recipe:{name}").settings("config.json")
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(transformers.AutoConfig.for_model(**settings))
    assert sum(each.numel() for each in model.parameters()) == parameters


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("openai/whisper-small", True),
        ("openai/whisper-small@main", True),
        ("hf:gpt2", True),
        ("recipe:a/b", True),
        ("transformers:pipeline/ner", True),
        ("diffusers:FluxPipeline", True),
        ("diffusers:UNet2DModel", False),
        ("transformers:BertModel", False),
        ("models/net.py", False),
        ("models/net.pt2", False),
        ("models/net.py:make", False),
        ("resnet50", False),
        ("./missing", False),
        ("a/b/c", False),
        ("\0/b", False),
    ],
)
def test_names_of_repositories(name: str, is_one: bool) -> None:
    assert is_repository(name) == is_one


def test_a_folder_is_a_repository(tmp_path: Path) -> None:
    assert is_repository(str(tmp_path))


def test_methods_of_quantization_are_read_of_all_parts(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path,
        model_index_json={},
        text__config_json={"quantization_config": {"quant_method": "gptq"}},
        unet__config_json={"quantization_config": {"load_in_4bit": True}},
        vae__config_json={"quantization_config": {"bits": 4}},
        scheduler__config_json={},
    )
    assert fetch(str(folder)).quantized_by() == ("gptq", "bitsandbytes", "an unnamed method")
