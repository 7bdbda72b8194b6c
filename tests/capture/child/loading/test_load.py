"""Each way to name a model finds it, and each mistake is said in three lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from opcheck.capture.child.loading import libraries
from opcheck.capture.child.loading.load import load
from opcheck.common.errors import ModelLoadError, UsageError
from opcheck.common.versions import Version
from opcheck.data.extensions import paired_line

NET = """
import dataclasses

import torch
from torch import nn

import helper


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return self.layer(x)


@dataclasses.dataclass
class Settings:
    width: "int" = helper.WIDTH


class Zoo:
    net = Net(Settings().width)


def pair():
    return Net(4), torch.ones(2, 4)


def full():
    return Net(4), ((torch.ones(2, 4),), {"scale": 3})


def named():
    return Net(4), {"x": torch.randn(2, 100_000)}


def step(x):
    return torch.linalg.eig(x)


def exported():
    return torch.export.export(Net(4), (torch.ones(2, 4),))


class Peeks(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(300, 300))
        if not torch.isfinite(self.weight).all():
            raise ValueError("weights are broken")


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = undefined_head


class Needs(nn.Module):
    def __init__(self, width):
        super().__init__()


number = 3


def text():
    return "no model"
"""

FILES = {
    "net.py": NET,
    "helper.py": "WIDTH = 16\n",
    "missing.py": "import torch\nimport no_such_package\n",
    "inner.py": "from torch import no_such_name\n",
    "asks.py": "raise ImportError('this net needs the natten library')\n",
    "syntax.py": "def net(:\n",
    "exits.py": "import sys\n\nsys.exit(3)\n",
    "relative.py": "from . import helper\n",
    "random.py": "from torch import nn\n\nnet = nn.ReLU()\n",
    "broken.pt2": "not a zip file",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    # A module of the same name must not be found by the next test; libraries stay.
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("spec", "width"), [("net.py:Net", 8), ("net:Net", 8), ("net.py:Zoo.net", 16), ("net:Zoo.net", 16)]
)
@pytest.mark.usefixtures("folder")
def test_a_class_or_an_instance_in_a_file_or_a_module(spec: str, width: int) -> None:
    loaded = load(spec)
    model: Any = loaded.model
    assert model.layer.in_features == width
    assert loaded.inputs is None
    assert loaded.family == "user"
    # Not torch.__version__: a build for CUDA calls itself 2.9.1+cu128 there only.
    assert loaded.packages["torch"] == metadata.version("torch")


@pytest.mark.parametrize(("spec", "is_searched"), [("torch.nn:ReLU", False), ("net:Net", True)])
def test_the_working_directory_is_searched_only_for_modules_that_are_not_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, spec: str, is_searched: bool
) -> None:
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in {"", str(folder)}])
    load(spec)
    assert (str(folder) in sys.path) is is_searched


def test_a_file_anywhere_finds_what_lies_beside_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert isinstance(load(f"{folder.name}/net.py:Net").model, nn.Module)


@pytest.mark.usefixtures("folder")
def test_a_file_may_have_the_name_of_a_loaded_module() -> None:
    import random

    assert isinstance(load("random.py:net").model, nn.ReLU)
    assert sys.modules["random"] is random


@pytest.mark.usefixtures("folder")
def test_a_class_takes_the_configuration() -> None:
    assert load("net.py:Net", {"width": 3}).model.layer.in_features == 3  # type: ignore[attr-defined]


@pytest.mark.usefixtures("folder")
def test_inputs_that_come_with_the_model() -> None:
    args, kwargs = load("net.py:pair").inputs or ((), {})
    assert torch.equal(args[0], torch.ones(2, 4))
    assert not kwargs
    args, kwargs = load("net.py:full").inputs or ((), {})
    assert args[0].shape == (2, 4)
    assert kwargs == {"scale": 3}


@pytest.mark.usefixtures("folder")
def test_large_inputs_that_come_with_the_model_are_real() -> None:
    args, kwargs = load("net.py:named").inputs or ((), {})
    assert not args
    assert not kwargs["x"].is_meta
    assert kwargs["x"].shape == (2, 100_000)


@pytest.mark.usefixtures("folder")
def test_a_function_of_tensors_is_the_model() -> None:
    for spec in ("net.py:step", "torch:linalg.eig"):
        assert load(spec).model(torch.eye(2)).eigenvalues.tolist() == [1, 1]


# torch 2.9 reads weights from a buffer of its own that it may not write to.
@pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning")
@pytest.mark.usefixtures("folder")
def test_an_exported_program_brings_its_inputs(folder: Path) -> None:
    made = load("net.py:exported")
    assert made.family == "export"
    torch.export.save(torch.export.export(nn.Linear(4, 2), (torch.ones(3, 4),)), folder / "m.pt2")
    read = load("m.pt2")
    for loaded, shape in ((made, (2, 4)), (read, (3, 2))):
        args, kwargs = loaded.inputs or ((), {})
        assert loaded.model(*args, **kwargs).shape == shape


@pytest.mark.usefixtures("folder")
def test_a_constructor_that_reads_its_weights_is_run_for_real() -> None:
    model: Any = load("net.py:Peeks").model
    assert torch.equal(model.weight, torch.ones(300, 300))


@pytest.mark.usefixtures("folder")
def test_the_weights_are_cast() -> None:
    model: Any = load("net.py:Net", dtype="bfloat16").model
    assert model.layer.weight.dtype is torch.bfloat16
    with pytest.raises(UsageError, match="unknown dtype"):
        load("net.py:Net", dtype="float7")


def three_lines(spec: str, config: dict[str, Any] | None = None) -> list[str]:
    with pytest.raises(ModelLoadError) as caught:
        load(spec, config)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("spec", "config", "what", "where", "then"),
    [
        ("net.py:Nett", {}, "net.py has no attribute 'Nett'", "model net.py:Nett", "did you mean Net"),
        ("net.py:Zoo.other", {}, "net.py has no attribute 'Zoo.other'", "model net.py:Zoo.other", "it defines net"),
        (
            "net.py",
            {},
            "'net.py:' names no attribute, and the file builds no module",
            "model net.py:",
            "it defines Net, Settings, Zoo, pair, full, named, step, exported",
        ),
        (
            "nett.py:Net",
            {},
            "there is no file nett.py",
            "model nett.py:Net, working directory {folder}",
            "did you mean net.py",
        ),
        (
            "no_such_package.models:Net",
            {},
            "there is no module no_such_package",
            "model no_such_package.models:Net, working directory {folder}",
            "run from the folder that it is imported from, or write file.py:attribute",
        ),
        (
            "missing.py:net",
            {},
            "building missing.py:net raises ModuleNotFoundError: No module named 'no_such_package'",
            "missing.py:2 in <module>: import no_such_package",
            "pip install no_such_package",
        ),
        (
            "missing:net",
            {},
            "building missing:net raises ModuleNotFoundError: No module named 'no_such_package'",
            "missing.py:2 in <module>: import no_such_package",
            "pip install no_such_package",
        ),
        (
            "inner.py:net",
            {},
            (
                f"building inner.py:net raises ImportError: cannot import name 'no_such_name' from "
                f"'torch' ({torch.__file__})"
            ),
            "inner.py:1 in <module>: from torch import no_such_name",
            "the installed torch is not the version that the code expects",
        ),
        (
            "asks.py:net",
            {},
            "building asks.py:net raises ImportError: this net needs the natten library",
            "asks.py:1 in <module>: raise ImportError('this net needs the natten library')",
            "install the package that the message names",
        ),
        (
            "syntax.py:net",
            {},
            "building syntax.py:net raises SyntaxError: invalid syntax (syntax.py, line 1)",
            "syntax.py:1: def net(:",
            f"Python {sys.version_info.major}.{sys.version_info.minor} cannot read that line",
        ),
        (
            "exits.py:net",
            {},
            "importing exits.py:net ends the process (exit code 3)",
            "exits.py:3 in <module>: sys.exit(3)",
            'put what a script does under: if __name__ == "__main__":',
        ),
        (
            "relative.py:net",
            {},
            "importing relative.py fails: attempted relative import with no known parent package",
            "model relative.py:net: a file has no package, as in python relative.py",
            "name it as package.module:attribute from the folder above the package",
        ),
        (
            "net.py:number",
            {},
            "net.py:number is no model: it is int",
            "model net.py:number",
            "name a torch.nn.Module, its class, or a function that returns a module",
        ),
        (
            "net.py:text",
            {},
            "net.py:text is no model: it returns str",
            "model net.py:text",
            "name a torch.nn.Module, its class, or a function that returns a module",
        ),
        (
            "net.py:Broken",
            {},
            "building net.py:Broken raises NameError: name 'undefined_head' is not defined",
            "net.py:59 in __init__: self.head = undefined_head",
            "the constructor has to run on the CPU, without weights, before the model can be audited",
        ),
        (
            "net.py:Needs",
            {},
            (
                "building net.py:Needs raises TypeError: Needs.__init__() missing 1 required "
                "positional argument: 'width'"
            ),
            "model net.py:Needs, working directory {folder}",
            "give its arguments, --config NAME=VALUE, or name a function that returns the model",
        ),
        (
            "net.py:Zoo.net",
            {"width": 3},
            "net.py:Zoo.net is a Net already: it takes no configuration",
            "configuration width",
            "name its class, or a function that returns it",
        ),
        (
            "resnet50",
            {},
            "not a model: 'resnet50'",
            "model resnet50, working directory {folder}",
            (
                "write file.py:attribute, package.module:attribute, file.pt2, or transformers:, timm:, "
                "torchvision:, diffusers: and a name"
            ),
        ),
        (
            "no.pt2",
            {},
            "there is no file no.pt2",
            "model no.pt2, working directory {folder}",
            "torch.export.save() writes one",
        ),
        (
            "folder.py:net",
            {},
            "folder.py is not a regular file",
            "model folder.py:net, working directory {folder}",
            "give the path from the working directory",
        ),
    ],
)
def test_mistakes_in_a_users_model(
    folder: Path, spec: str, config: dict[str, Any], what: str, where: str, then: str
) -> None:
    (folder / "folder.py").mkdir()
    assert three_lines(spec, config) == [what, f"  in: {where.format(folder=folder)}", f"  help: {then}"]


@pytest.mark.usefixtures("folder")
def test_a_damaged_program() -> None:
    what, where, then = three_lines("broken.pt2")
    assert what == "broken.pt2 cannot be read: it is no whole zip file: File is not a zip file"
    assert where == f"  in: torch {torch.__version__}"
    assert then == "  help: save it again, with this torch, by torch.export.save()"


SMALL_BERT = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def test_a_transformers_class_with_its_configuration() -> None:
    transformers = pytest.importorskip("transformers")
    loaded = load("transformers:BertModel", SMALL_BERT)
    assert isinstance(loaded.model, transformers.BertModel)
    assert loaded.model.config.hidden_size == 32
    assert loaded.family == "transformers"
    assert loaded.packages["transformers"] == transformers.__version__


def test_a_transformers_class_casts_itself() -> None:
    pytest.importorskip("transformers")
    config = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    model: Any = load("transformers:LlamaModel", config, dtype="float16").model
    assert {weight.dtype for weight in model.parameters()} == {torch.float16}
    # As after from_pretrained(dtype=...): the table of positions is not cast.
    assert model.rotary_emb.inv_freq.dtype is torch.float32


def test_a_backbone_is_not_downloaded() -> None:
    class Config:
        use_pretrained_backbone = True

    class Detector(nn.Module):
        config_class = Config

        @classmethod
        def _from_config(cls, config: Config) -> nn.Module:
            made: Any = cls()
            made.downloads = config.use_pretrained_backbone
            return made

    library: Any = SimpleNamespace(Detector=Detector, __version__="4.45")
    model: Any = libraries.build("transformers", library, "Detector", {}, None)
    assert model.downloads is False


def test_a_timm_model() -> None:
    timm = pytest.importorskip("timm")
    loaded = load("timm:resnet18", {"num_classes": 7})
    assert isinstance(loaded.model, timm.models.ResNet)
    assert loaded.model.num_classes == 7
    assert loaded.family == "timm"


@pytest.mark.parametrize("name", ["resnet18", "fasterrcnn_mobilenet_v3_large_320_fpn"])
def test_a_torchvision_model(name: str) -> None:
    torchvision = pytest.importorskip("torchvision")
    loaded = load(f"torchvision:{name}")
    assert type(loaded.model).__module__.startswith(torchvision.models.__name__)
    assert loaded.family == "torchvision"


def test_torchvisions_operators_are_declared() -> None:
    torchvision = pytest.importorskip("torchvision")
    features, boxes = torch.empty(1, 3, 8, 8, device="meta"), torch.empty(2, 5, device="meta")
    assert torchvision.ops.roi_align(features, boxes, (2, 2)).shape == (2, 3, 2, 2)
    offset, weight = (torch.empty(shape, device="meta") for shape in ((1, 18, 6, 6), (4, 3, 3, 3)))
    assert torchvision.ops.deform_conv2d(features, offset, weight).shape == (1, 4, 6, 6)


def test_a_diffusers_class() -> None:
    diffusers = pytest.importorskip("diffusers")
    loaded = load("diffusers:AutoencoderKL", {"block_out_channels": [32], "latent_channels": 2})
    assert isinstance(loaded.model, diffusers.AutoencoderKL)
    assert loaded.model.config.latent_channels == 2
    assert loaded.family == "diffusers"


@pytest.mark.usefixtures("folder")
def test_a_subclass_of_a_library_model_keeps_its_conventions(folder: Path) -> None:
    pytest.importorskip("transformers")
    (folder / "mine.py").write_text(
        "from transformers import BertConfig, BertModel\n"
        "class Mine(BertModel):\n"
        "    def __init__(self):\n"
        f"        super().__init__(BertConfig(**{SMALL_BERT}))\n"
        "class Own(Mine):\n"
        "    def forward(self, x):\n"
        "        return x\n"
    )
    assert load("mine.py:Mine").family == "transformers"
    assert load("mine.py:Own").family == "user"


@pytest.mark.parametrize(
    ("spec", "config", "what", "where", "then"),
    [
        (
            "transformers:BertModl",
            {},
            "transformers has no class 'BertModl'",
            "model transformers:BertModl, transformers {transformers}",
            "did you mean BertModel",
        ),
        (
            "transformers:BertConfig",
            {},
            "transformers.BertConfig is no model",
            "model transformers:BertConfig",
            "name a model class: transformers:BertModel",
        ),
        (
            "transformers:AutoModel",
            {},
            "transformers.AutoModel is a name for many models",
            "model transformers:AutoModel",
            "name a model class: transformers:BertModel",
        ),
        (
            "transformers:BertModel",
            {"hiden_size": 3},
            "BertConfig has no 'hiden_size'",
            "configuration of transformers:BertModel",
            "did you mean hidden_size",
        ),
        (
            "transformers:BertModel",
            {"hidden_size": 47},
            (
                "building transformers:BertModel raises ValueError: The hidden size (47) is not a "
                "multiple of the number of attention heads (12)"
            ),
            "transformers/models/bert/modeling_bert.py:",
            "the constructor has to run on the CPU",
        ),
        (
            "timm:resnet51",
            {},
            "timm has no model 'resnet51'",
            "model timm:resnet51",
            "did you mean resnet51q, resnet50",
        ),
        (
            "torchvision:zzz",
            {},
            "torchvision has no model 'zzz'",
            "model torchvision:zzz",
            "torchvision.models.list_models() names them all",
        ),
        (
            "diffusers:DDIMScheduler",
            {},
            "diffusers.DDIMScheduler is no model",
            "model diffusers:DDIMScheduler",
            "name a model class",
        ),
    ],
)
def test_mistakes_in_a_library_model(spec: str, config: dict[str, Any], what: str, where: str, then: str) -> None:
    library = pytest.importorskip(spec.partition(":")[0])
    lines = three_lines(spec, config)
    assert lines[0] == what
    assert lines[1].startswith("  in: " + where.format(transformers=library.__version__))
    assert lines[2].startswith(f"  help: {then}")
    assert len(lines) == 3


def test_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert three_lines("timm:resnet18") == [
        "timm is not installed",
        "  in: model timm:resnet18",
        "  help: python -m pip install timm",
    ]
    fitting = paired_line("torchvision", str(Version.parse(torch.__version__)))
    hint = f"  help: python -m pip install --no-deps torchvision=={fitting}.*"
    assert three_lines("torchvision:resnet18")[2] == hint


def test_a_library_that_does_not_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "diffusers"
    package.mkdir()
    (package / "__init__.py").write_text("from torch import no_such_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "diffusers", raising=False)
    what, where, then = three_lines("diffusers:UNet2DModel")
    assert what.startswith("importing diffusers raises ImportError: cannot import name")
    assert where.endswith("__init__.py:1 in <module>: from torch import no_such_name")
    assert then == f"  help: install a diffusers that fits torch {torch.__version__}"


@pytest.mark.parametrize(
    ("package", "hint"),
    [
        ("torch_scatter", "PyPI has no wheel of torch_scatter for macOS"),
        ("nowhere_to_be_found", "pip install nowhere_to_be_found"),
    ],
)
def test_a_package_that_is_missing(tmp_path: Path, package: str, hint: str) -> None:
    file = tmp_path / f"needs_{package}.py"
    file.write_text(f"import {package}.sub\n\ndef net(): ...\n", encoding="utf-8")
    with pytest.raises(ModelLoadError) as caught:
        load(f"{file}:net")
    assert caught.value.hint.startswith(hint)
