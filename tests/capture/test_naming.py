"""Short names of models: completed, or answered with what to write, without running anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from opcheck.capture import naming
from opcheck.capture.naming import full_name, read_modules
from opcheck.common.errors import ModelLoadError

HEAD = "from torch import nn\n"
NET = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "mine.py") -> str:
    Path(name).write_text(HEAD + text, encoding="utf-8")
    return name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (NET, "Net"),
        ("class Block(nn.Module): pass\nclass Net(nn.Module):\n    part = Block()\n", "Net"),
        (NET + "def make():\n    return Net()\n", "make"),
        (NET + "def make(n=3):\n    net = Net()\n    net.eval()\n    return net\n", "make"),
        ("model = nn.Sequential(nn.ReLU()).eval()\n", "model"),
        ("def make() -> nn.Module:\n    ...\n", "make"),
        (NET + "class _Own(Net): pass\nclass Other: pass\nNAMES = dict()\n", "Net"),
        (NET + "if __name__ == '__main__':\n    print(Net())\n", "Net"),
    ],
)
def test_the_only_model_of_a_file_is_taken(text: str, name: str) -> None:
    assert full_name(write(text)) == f"mine.py:{name}"
    assert full_name(".") == f"mine.py:{name}"
    assert full_name("mine.py:") == f"mine.py:{name}"


def test_several_models_are_listed() -> None:
    write(NET + "class Second(nn.Module): pass\n")
    with pytest.raises(ModelLoadError, match="defines 2 models") as caught:
        full_name("mine.py")
    assert caught.value.hint == "write mine.py:Net or mine.py:Second"


@pytest.mark.parametrize("text", ["x = 3\n", "class Plain: pass\n"])
def test_a_file_without_a_model_says_so(text: str) -> None:
    with pytest.raises(ModelLoadError, match="defines no model"):
        full_name(write(text))


@pytest.mark.parametrize("text", ["def broken(:\n", "\0"])
def test_a_file_that_is_no_python_says_so(text: str) -> None:
    with pytest.raises(ModelLoadError, match="is not a file of Python"):
        full_name(write(text))
    with pytest.raises(ModelLoadError, match="is not a file of Python"):
        full_name("mine.py:")


def test_what_needs_arguments_is_known() -> None:
    write(
        "class One(nn.Module):\n    def __init__(self, n): pass\n"
        "class Two(nn.Module):\n    def __init__(self, n=1, *, m=2): pass\n"
        "def three(*, n): return Two()\n"
    )
    assert [(each.name, each.complete) for each in read_modules(Path("mine.py")).modules] == [
        ("One", False),
        ("Two", True),
        ("three", False),
    ]


def test_a_bare_name_is_answered_with_the_libraries_that_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"torchvision": ("resnet50",), "timm": ("resnet50", "vit_tiny")}
    monkeypatch.setattr(naming, "library_models", lambda library: names.get(library, ()))
    for spec in ("resnet50", "ResNet-50", "torchvision.models.resnet50"):
        with pytest.raises(ModelLoadError) as caught:
            full_name(spec)
        assert caught.value.hint == ("opcheck audit torchvision:resnet50 or opcheck audit timm:resnet50")
    with pytest.raises(ModelLoadError) as caught:
        full_name("vit_tinny")
    assert caught.value.hint == "did you mean timm:vit_tiny?"
    with pytest.raises(ModelLoadError) as caught:
        full_name("package.module.Net")
    assert caught.value.hint == "package.module:Net?"


@pytest.mark.parametrize(
    "spec", ["openai/whisper-small", "timm:resnet50", "model.pt2", "a.py:Net", "package.module:Net"]
)
def test_whole_names_stay(spec: str) -> None:
    assert full_name(spec) == spec


def test_a_folder_with_a_configuration_is_named_by_its_bare_name() -> None:
    with pytest.raises(ModelLoadError, match="not a model: 'checkpoint'"):
        full_name("checkpoint")
    Path("checkpoint").mkdir()
    Path("checkpoint/config.json").write_text("{}", encoding="utf-8")
    assert full_name("checkpoint") == "checkpoint"


@pytest.mark.parametrize("name", ["a.pt", "a.pth", "a.ckpt", "a.bin", "a.safetensors", "a.onnx"])
def test_a_file_of_weights_is_no_program(name: str) -> None:
    with pytest.raises(ModelLoadError, match="there is no file") as caught:
        full_name(name)
    assert "write file.py:attribute" in caught.value.hint
    Path(name).write_bytes(b"\x80\x04pickle")
    with pytest.raises(ModelLoadError, match="not a model that can be audited"):
        full_name(name)


def test_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    write("raise SystemExit(3)\n" + NET)
    assert full_name("mine.py") == "mine.py:Net"
    assert "mine" not in sys.modules


def test_a_bare_name_of_a_public_model_points_to_its_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "library_models", lambda _library: ())
    with pytest.raises(ModelLoadError) as caught:
        full_name("gpt2")
    assert caught.value.hint.startswith("opcheck audit recipe:openai-community/gpt2, ")


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_file_of_weights_is_named_by_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = torch.nn.Linear(2, 2)
    torch.save(module, "module.pt")
    torch.save(module.state_dict(), "weights.pt")
    torch.save({"model": module.state_dict(), "args": Path("x")}, "checkpoint.pt")
    torch.jit.save(torch.jit.script(module), "script.pt")
    header = b'{"__metadata__":{}}      '
    Path("w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    for name, kind, hint in (
        ("module.pt", "a pickled object of torch.nn.modules.linear:Linear", "name the class"),
        ("weights.pt", "a checkpoint of torch.save", "weights and no program"),
        ("checkpoint.pt", "a checkpoint of torch.save", "weights and no program"),
        ("script.pt", "a TorchScript archive", "torch.jit.load"),
        ("w.safetensors", "a safetensors file", "tensors by name"),
    ):
        with pytest.raises(ModelLoadError) as caught:
            full_name(name)
        assert kind in caught.value.message, name
        assert hint in caught.value.hint, name
