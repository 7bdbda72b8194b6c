"""A real wheel gives the committed column, and the library what a live dispatcher holds."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("lief")

from opcheck.common.errors import OpListError
from opcheck.data.registrations import FILES, data_directory
from opcheck.data.wheels import archive
from opcheck.data.wheels.archive import default_cache
from opcheck.data.wheels.column import Dispatch, dispatch, registrations
from opcheck.data.wheels.image import Image
from opcheck.data.wheels.release import build

pytestmark = pytest.mark.wheel

RELEASE = "2.13.0"

#: What a Linux build registers and a Mac build does not, by key.
LIVE_ONLY = {
    # torch/csrc/jit/runtime/register_distributed_ops.cpp: only in builds with TensorPipe RPC.
    "CompositeImplicitAutograd": {"aten::get_gradients"}
}


@pytest.fixture(scope="module")
def wheel() -> Path:
    try:
        return archive.obtain(RELEASE, default_cache())
    except OpListError as error:
        pytest.skip(f"the wheel of torch {RELEASE} cannot be had: {error.context}")


def test_the_rebuilt_release_is_the_committed_one(wheel: Path, tmp_path: Path) -> None:
    committed = data_directory()
    lists = Path(shutil.copytree(committed, tmp_path / "op_lists"))
    assert build(str(wheel), lists, tmp_path).changed == ()
    for file in ("releases.yaml", *FILES.values()):
        assert (lists / file).read_bytes() == (committed / file).read_bytes()


@pytest.fixture(scope="module")
def read_dispatch(wheel: Path) -> Dispatch:
    with tempfile.TemporaryDirectory() as folder:
        archive.read_archive(wheel).unpack(Path(folder))
        return dispatch(registrations(Image.parse(Path(folder) / archive.LIBRARY)))


@pytest.mark.parametrize(
    "key",
    [
        "CPU",
        "CompositeExplicitAutograd",
        "CompositeExplicitAutogradNonFunctional",
        "CompositeImplicitAutograd",
        "AutocastMPS",
        "SparseCPU",
        "QuantizedCPU",
        "BackendSelect",
    ],
)
def test_the_library_holds_what_a_live_dispatcher_holds(read_dispatch: Dispatch, key: str) -> None:
    torch = pytest.importorskip("torch")
    if torch.__version__.partition("+")[0] != RELEASE:
        pytest.skip(f"torch {torch.__version__} is installed, the wheel is {RELEASE}")
    every = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    live = {name for name in every if name.startswith("aten::")}
    assert live - read_dispatch.key(key) == LIVE_ONLY.get(key, set())
    assert read_dispatch.key(key) <= live
