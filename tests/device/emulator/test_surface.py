"""``torch.mps``, ``torch.accelerator``, generators, threads; files and pickles."""

from __future__ import annotations

import copy
import io
import pickle
import threading
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("mac")


def saved(value: object, **options: bool) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


def test_allocated_memory_is_that_of_live_tensors() -> None:
    before = torch.mps.current_allocated_memory()
    x = torch.zeros(1000, device="mps")
    view = x[1:]
    assert torch.mps.current_allocated_memory() - before == 4096
    del x
    assert torch.mps.current_allocated_memory() - before == 4096
    assert torch.mps.driver_allocated_memory() >= torch.mps.current_allocated_memory()
    del view
    assert torch.mps.current_allocated_memory() == before


def test_the_generator_of_the_device() -> None:
    torch.mps.manual_seed(1)
    state = torch.mps.get_rng_state()
    first = torch.rand(2, device="mps")
    torch.mps.set_rng_state(state)
    assert torch.equal(first, torch.rand(2, device="mps"))
    torch.manual_seed(5)
    again = torch.rand(2, device="mps")
    torch.manual_seed(5)
    assert torch.equal(again, torch.rand(2, device="mps"))
    with torch.random.fork_rng(device_type="mps"):
        torch.mps.seed()


def _pickle_again(value: object) -> object:
    return pickle.loads(pickle.dumps(value))  # noqa: S301


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("device", ["mps", "cpu"])
def test_a_deep_copy_of_a_tensor_warns_of_nothing(device: str) -> None:
    assert copy.deepcopy(torch.ones(2, device=device)).device.type == device


@pytest.mark.parametrize("device", ["mps", "cpu"])
@pytest.mark.parametrize("again", [lambda g: g.clone_state(), copy.deepcopy, _pickle_again])
def test_a_copy_of_a_generator_is_on_its_device(
    again: Callable[[torch.Generator], torch.Generator], device: str
) -> None:
    generator = torch.Generator(device).manual_seed(3)
    torch.rand(2, device=device, generator=generator)
    other = again(generator)
    assert other.device.type == device
    draws = [torch.rand(2, device=device, generator=each).tolist() for each in (generator, other)]
    assert draws[0] == draws[1]


def test_a_generator() -> None:
    generator = torch.Generator("mps")
    assert generator.device.type == "mps"
    assert isinstance(generator, torch.Generator)
    draws = []
    for _ in range(2):
        generator.manual_seed(3)
        draws.append(torch.rand(2, device="mps", generator=generator).tolist())
    assert draws[0] == draws[1]
    state = generator.get_state()
    first = torch.randn(1, device="mps", generator=generator)
    generator.set_state(state)
    assert torch.equal(first, torch.randn(1, device="mps", generator=generator))


def test_events_streams_and_the_profiler() -> None:
    start, end = (torch.mps.Event(enable_timing=True) for _ in range(2))
    start.record()
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    assert start.query()
    event = torch.Event(device="mps")
    event.record()
    assert isinstance(event, torch.Event)
    torch.accelerator.current_stream().synchronize()
    with torch.mps.profiler.profile():
        torch.mps.synchronize()


def test_a_stream_prints_as_on_a_mac() -> None:
    printed = repr(torch.accelerator.current_stream())
    assert printed == "torch.Stream device_type=mps, device_index=0, stream_id=0"


def test_range_is_made_on_mps_with_its_warning() -> None:
    with pytest.warns(UserWarning, match=r"torch\.range is deprecated"):
        result = torch.range(0, 1, step=0.5, device="mps", requires_grad=True)
    assert (result.device.type, result.requires_grad, result.tolist()) == ("mps", True, [0, 0.5, 1])
    with pytest.warns(UserWarning, match=r"torch\.range is deprecated"):
        assert torch.range(0, 1).device.type == "cpu"


def test_the_memory_of_a_tensor_is_a_storage() -> None:
    assert torch.is_storage(torch.ones(1, device="mps").untyped_storage())
    assert not torch.is_storage(torch.ones(1, device="mps"))


def test_the_accelerator() -> None:
    assert torch.accelerator.is_available()
    device = torch.accelerator.current_accelerator()
    assert device is not None
    assert device.type == "mps"
    assert torch.accelerator.device_count() == torch.mps.device_count() == 1
    assert torch.accelerator.current_device_index() == 0
    assert torch.get_device_module("mps") is torch.mps
    torch.accelerator.synchronize()
    torch.mps.empty_cache()
    torch.mps.set_per_process_memory_fraction(0.5)
    assert torch.mps.recommended_max_memory() > 0


def test_threads_of_the_program() -> None:
    made: list[float] = []

    def work() -> None:
        made.extend((torch.ones(2).to("mps") + torch.ones(2, device="mps")).tolist())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert made == [2, 2]
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda i: (torch.ones(1, device="mps") * i).item(), range(3))
        assert [*results] == [0, 1, 2]


def test_a_file_is_one_that_a_mac_writes() -> None:
    file = saved({"x": torch.arange(3, device="mps"), "p": nn.Parameter(torch.ones(2).to("mps"))})
    archive = zipfile.ZipFile(file)
    name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
    pickled = archive.read(name)
    assert b"opcheck" not in pickled
    assert b"mps" in pickled


@pytest.mark.parametrize("where", [None, "mps", "cpu"])
@pytest.mark.parametrize("archive", [True, False])
def test_a_file_is_loaded(where: str | None, *, archive: bool) -> None:
    file = saved(torch.arange(4.0, device="mps")[1:3], _use_new_zipfile_serialization=archive)
    loaded = torch.load(file, map_location=where)
    assert loaded.is_mps is (where != "cpu")
    assert loaded.tolist() == [1, 2]


def test_a_file_of_the_cpu_is_loaded_onto_the_device() -> None:
    assert torch.load(saved(torch.ones(2)), map_location="mps").is_mps
    with pytest.raises(TypeError, match="float64"):
        torch.load(saved(torch.ones(2, dtype=torch.float64)), map_location="mps")


def test_state_dicts() -> None:
    model = nn.Linear(2, 2).to("mps")
    other = nn.Linear(2, 2)
    other.load_state_dict(model.state_dict())
    assert not other.weight.is_mps
    assert torch.equal(other.weight, model.weight.cpu())
    model.load_state_dict(torch.load(saved(other.state_dict())))
    assert model.weight.is_mps
    model.load_state_dict(other.state_dict(), assign=True)
    assert not model.weight.is_mps


def test_pickles() -> None:
    x = pickle.loads(pickle.dumps(torch.arange(3, device="mps")))  # noqa: S301
    assert x.is_mps
    assert x.tolist() == [0, 1, 2]
    model = pickle.loads(pickle.dumps(nn.Linear(2, 2).to("mps")))  # noqa: S301
    assert model.weight.is_mps
    assert isinstance(model.weight, nn.Parameter)


def test_storages() -> None:
    x = torch.arange(3.0, device="mps")
    y = torch.empty(0, device="mps")
    y.set_(x.untyped_storage(), 1, (2,), (1,))
    assert y.tolist() == [1, 2]
    y.zero_()
    assert x.tolist() == [0, 0, 0]
    assert x.untyped_storage().cpu().device.type == "cpu"
