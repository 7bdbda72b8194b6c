"""The wheel reader on small made inputs: archives, Python files, yaml."""

from __future__ import annotations

import errno
import shutil
import struct
import subprocess
import zipfile
from collections.abc import Callable
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("lief")

from opcheck.common.errors import OpListError, UsageError
from opcheck.data.wheels import archive
from opcheck.data.wheels.column import Schema, python_kernels, read_schemas
from opcheck.data.wheels.release import build

WHEEL = "torch-2.13.0-cp311-cp311-macosx_14_0_arm64.whl"
VERSION = "__version__ = '2.13.0'\ngit_version = 'abc'\n"


def made_wheel(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {"torch/version.py": VERSION, **members}.items():
            wheel.writestr(zipfile.ZipInfo(name, (2026, 7, 3, 1, 2, 4)), text)
    return path


def test_what_a_wheel_says_about_itself(tmp_path: Path) -> None:
    result = archive.read_archive(made_wheel(tmp_path / WHEEL))
    assert (result.version, result.commit, result.built) == ("2.13.0", "abc", date(2026, 7, 3))
    assert len(result.sha256) == 64


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torch.whl", "not a wheel's file name"),
        ("torch-2.2.2-cp311-none-macosx_10_9_x86_64.whl", "not a macOS arm64 wheel"),
        ("torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl", "not a macOS arm64 wheel"),
        ("torch-2.13.0-cp311-cp311-manylinux_2_28_aarch64.whl", "not a macOS arm64 wheel"),
        ("numpy-2.13.0-cp311-cp311-macosx_14_0_arm64.whl", "not a macOS arm64 wheel"),
        ("torch-2.12.0-cp311-cp311-macosx_14_0_arm64.whl", "disagrees"),
    ],
)
def test_other_wheels_are_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(OpListError, match=message) as caught:
        archive.read_archive(made_wheel(tmp_path / name))
    assert len(str(caught.value).splitlines()) == 3


def test_a_damaged_wheel_is_refused(tmp_path: Path) -> None:
    path = tmp_path / WHEEL
    path.write_bytes(b"not a zip archive")
    with pytest.raises(OpListError, match="damaged"):
        archive.read_archive(path)


def patched(wheel: Path, old: bytes, new: bytes) -> None:
    content = wheel.read_bytes()
    assert old in content
    wheel.write_bytes(content.replace(old, new))


def of_zero_date(wheel: Path) -> None:
    # Time and date of the member's two headers.
    stamp = struct.pack("<HH", 1 << 11 | 2 << 5 | 2, 46 << 9 | 7 << 5 | 3)
    patched(wheel, stamp, bytes(4))


def encrypted(wheel: Path) -> None:
    patched(wheel, b"PK\x03\x04\x14\0\0", b"PK\x03\x04\x14\0\x01")
    patched(wheel, b"PK\x01\x02\x14\x03\x14\0\0", b"PK\x01\x02\x14\x03\x14\0\x01")


def compressed_in_no_way(wheel: Path) -> None:
    patched(wheel, b"PK\x03\x04\x14\0\0\0\0\0", b"PK\x03\x04\x14\0\0\0\x63\0")
    patched(wheel, b"\x14\x03\x14\0\0\0\0\0", b"\x14\x03\x14\0\0\0\x63\0")


@pytest.mark.parametrize(
    "damage",
    [
        of_zero_date,
        encrypted,
        compressed_in_no_way,
        lambda wheel: patched(wheel, b"abc", b"abd"),
        lambda wheel: wheel.write_bytes(wheel.read_bytes()[:-30]),
        lambda wheel: wheel.write_bytes(wheel.read_bytes()[40:]),
        lambda wheel: wheel.write_bytes(b""),
        lambda wheel: made_wheel(wheel, **{"torch/version.py": "\0"}),
        lambda wheel: made_wheel(wheel, **{"torch/version.py": "(" * 100_000}),
        lambda wheel: made_wheel(wheel, **{"torch/version.py": "-" * 100_000 + "1"}),
    ],
)
def test_whatever_is_wrong_with_its_bytes_is_damage(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    wheel = made_wheel(tmp_path / WHEEL)
    damage(wheel)
    with pytest.raises(OpListError, match="damaged") as caught:
        archive.read_archive(wheel)
    assert len(str(caught.value).splitlines()) == 3


def test_a_wheel_that_would_fill_the_disk_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / WHEEL
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as written:
        written.writestr("torch/version.py", VERSION)
        written.writestr("torchgen/zeros", bytes(100 << 20))
    with pytest.raises(OpListError, match="takes far more than any does"):
        archive.read_archive(wheel)


def test_a_wheel_without_the_library_is_refused(tmp_path: Path) -> None:
    wheel = archive.read_archive(made_wheel(tmp_path / WHEEL))
    with pytest.raises(OpListError, match="the wheel has no torch/lib"):
        wheel.unpack(tmp_path / "tree")


@pytest.mark.parametrize("source", ["", "latest", "2.13", "torch==2.13.0", "no/such/file.whl"])
def test_a_source_is_a_release_or_a_wheel(tmp_path: Path, source: str) -> None:
    with pytest.raises(UsageError, match="neither a torch release nor a wheel"):
        build(source, tmp_path / "lists", tmp_path / "cache")
    assert not list(tmp_path.iterdir())


def test_the_cache_answers_before_the_index(tmp_path: Path) -> None:
    path = made_wheel(tmp_path / WHEEL)
    assert archive.obtain("2.13.0", tmp_path) == path


@pytest.mark.parametrize("code", [0, 1])
def test_a_wheel_is_in_the_cache_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def download(command: list[str], **_others: object) -> subprocess.CompletedProcess[str]:
        to = Path(command[command.index("--dest") + 1])
        made_wheel(to / WHEEL) if code == 0 else (to / WHEEL).write_bytes(b"half")
        return subprocess.CompletedProcess(command, code, "", "a notice\nNo space left on device\n")

    monkeypatch.setattr(subprocess, "run", download)
    cache = tmp_path / "cache"
    if code == 0:
        assert archive.obtain("2.13.0", cache) == cache / WHEEL
    else:
        with pytest.raises(OpListError, match="could be downloaded") as caught:
            archive.obtain("2.13.0", cache)
        assert caught.value.context == "No space left on device"
    assert [path.name for path in cache.iterdir()] == [WHEEL] * (code == 0)


def test_a_full_disk_is_no_damage_of_a_wheel(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space"), archive.report_damage(tmp_path / WHEEL, ""):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_the_cache_directory_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPCHECK_CACHE", "elsewhere")
    assert archive.default_cache() == Path("elsewhere")
    monkeypatch.delenv("OPCHECK_CACHE")
    assert archive.default_cache().parts[-2:] == ("opcheck", "wheels")


def test_known_python_registrations_are_found() -> None:
    result = python_kernels(
        {
            "torch/backends/mps/__init__.py": (
                '_lib = _Library("aten", "IMPL")\n'
                '_lib.impl("native_group_norm", fn, "MPS")\n'
                '_lib.impl("bmm", fn, "CUDA")\n'
            ),
            "torch/_refs/linalg/__init__.py": (
                'mps_lib = torch.library.Library("aten", "IMPL", "MPS")\n'
                'mps_lib.impl("aten::linalg_lu_solve.out", fn)\n'
            ),
            "torch/_inductor/test_operators.py": (
                'lib = torch.library.Library("_inductor_test", "IMPL")\n'
                'for key in ("CPU", "MPS"):\n    lib.impl("realize", fn, key)\n'
            ),
            "torch/nn/other.py": 'x = "MPSProperties"\n',
        }
    )
    assert result == {"aten::native_group_norm", "aten::linalg_lu_solve.out"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('lib = Library("aten", "IMPL")\nlib.impl("mm", fn, "MPS")\n', "aten::mm"),
        ('lib = Library("aten", "IMPL")\nlib.impl("mm", fn, dispatch_key="MPS")\n', "aten::mm"),
        ("lib.impl('mm', fn, 'SparseMPS')\n", "a dispatch key"),
        ('register(op, key="MPS")\n', "a dispatch key"),
    ],
)
def test_a_new_python_registration_stops_the_build(text: str, named: str) -> None:
    with pytest.raises(OpListError, match="that opcheck does not know") as caught:
        python_kernels({"torch/new.py": text})
    assert "torch/new.py" in caught.value.context
    assert named in caught.value.context


MADE_YAML = """
- func: lone(Tensor self) -> Tensor
  dispatch:
    CPU: lone_cpu
    MPS: lone_mps

- func: made(Tensor self) -> Tensor
  structured_delegate: made.out

- func: made_(Tensor(a!) self) -> Tensor(a!)
  structured_delegate: made.out

- func: made.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  structured_inherits: TensorIteratorBase
  dispatch:
    CPU: made_out
    MPS: made_out_mps
    SparseMPS: made_out_sparse_mps

- func: grow(Tensor self) -> Tensor
  dispatch:
    CPU: grow_cpu
  autogen: grow.out

- func: sum_of(Tensor self) -> Tensor
"""


@pytest.fixture
def torchgen_tree(tmp_path: Path) -> Path:
    """The installed torchgen, with a native_functions.yaml of six operators."""
    spec = find_spec("torchgen")
    if spec is None or spec.origin is None:
        pytest.skip("no torchgen is installed")
    source = Path(spec.origin).parent
    shutil.copytree(source, tmp_path / "torchgen", ignore=shutil.ignore_patterns("__pycache__"))
    native = tmp_path / "torchgen/packaged/ATen/native"
    (native / "native_functions.yaml").write_text(MADE_YAML)
    return tmp_path


def test_the_yaml_is_read_through_torchgen(torchgen_tree: Path) -> None:
    result = read_schemas(torchgen_tree)
    assert result["aten::lone"] == Schema(generated=False, keys=("MPS",))
    # The structured kernel of made.out serves the other forms; the SparseMPS one does not.
    for form in ("aten::made", "aten::made_"):
        assert result[form] == Schema(generated=False, keys=("MPS",), out="aten::made.out")
    assert result["aten::made.out"].keys == ("MPS", "SparseMPS")
    assert result["aten::grow.out"] == Schema(generated=True, keys=(), base="aten::grow")
    assert result["aten::sum_of"] == Schema(generated=False, keys=())


def test_a_yaml_that_torchgen_refuses(torchgen_tree: Path) -> None:
    native = torchgen_tree / "torchgen/packaged/ATen/native"
    (native / "native_functions.yaml").write_text("- func: broken(\n")
    with pytest.raises(OpListError, match="does not parse"):
        read_schemas(torchgen_tree)
