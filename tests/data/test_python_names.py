"""Names of torch's Python modules by release, as they were read from the wheels."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from opcheck.common.errors import OpListError
from opcheck.data.registrations import load
from opcheck.data.tables import NAMES
from scripts.extract_python_names import extract


@pytest.mark.parametrize(
    ("module", "name", "first"),
    [
        ("torch", "accelerator", "2.6"),
        ("torch", "compile", "2.0"),
        ("torch", "mps", "2.0"),
        ("torch.mps", "compile_shader", "2.7"),
        ("torch.amp", "GradScaler", "2.3"),
        ("torch.nn", "RMSNorm", "2.4"),
        ("torch.nn.functional", "scaled_dot_product_attention", "2.0"),
        ("torch.accelerator", "memory_allocated", "2.9"),
    ],
)
def test_a_name_is_there_from_its_release_on(module: str, name: str, first: str) -> None:
    names = NAMES.load()
    having = [line for line in names.releases if names.has(line, module, name)]
    assert having == list(names.releases[names.releases.index(first) :])


def test_all_releases_were_read() -> None:
    assert NAMES.load().releases == tuple(release.line for release in load().releases)


def test_a_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OpListError, match="cannot be read"):
        NAMES.load(tmp_path)


def wheel(path: Path, schemas: str = "", **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("torchgen/packaged/ATen/native/native_functions.yaml", schemas)
        for name in ("_C/__init__.pyi", "_C/_VariableFunctions.pyi"):
            archive.writestr(f"torch/{name}", "")
        for name, text in files.items():
            archive.writestr(f"torch/{name.replace('__', '/')}.py", text)
    return path


def test_what_a_module_binds_and_what_of_it_is_public(tmp_path: Path) -> None:
    old = wheel(tmp_path / "1.whl", a="from os import path\ndef f(): ...\n", b="kept = 1\n")
    new = wheel(
        tmp_path / "2.whl",
        a="from os import path, sep\nfrom .b import *\ndef f(): ...\ndef g(): ...\ndef _h(): ...\n",
        b="__all__ = ['kept', 'listed']\nfrom .c import listed\nunlisted = 1\n",
        c="def listed(): ...\n",
    )
    names = extract({"1.0": old, "2.0": new})["modules"]
    assert names == {"torch.a": {"g": [["2.0", ""]]}, "torch.b": {"listed": [["2.0", ""]]}}


def test_arguments_that_some_releases_lack_are_read_from_python_and_from_schemas(tmp_path: Path) -> None:
    old = wheel(
        tmp_path / "1.whl",
        "- func: mm(Tensor self, Tensor mat2) -> Tensor\n",
        a="def f(x, old=1): ...\ndef g(**any): ...\nclass C:\n    def __init__(self, x): ...\n",
    )
    new = wheel(
        tmp_path / "2.whl",
        "- func: mm(Tensor self, Tensor mat2) -> Tensor\n"
        "- func: mm.dtype(Tensor self, Tensor mat2, ScalarType out_dtype) -> Tensor\n",
        a="def f(x, *, new=1): ...\ndef g(named): ...\nclass C:\n    def __init__(self, x, y=1): ...\ndef h(z): ...\n",
    )
    assert extract({"1.0": old, "2.0": new})["arguments"] == {
        "aten.mm": {"out_dtype": [["2.0", ""]]},
        "torch.a.C.__init__": {"y": [["2.0", ""]]},
        "torch.a.f": {"new": [["2.0", ""]], "old": [["1.0", ""], ["2.0", None]]},
    }
