"""Simulate the generators of random numbers of ``mps``: a stream of its own, separate from the CPU's.

ATen/mps/MPSGeneratorImpl.mm: a Philox generator, whose state is a seed and how far it has come. Its numbers are not
computed here; the CPU's generator draws in its place, seeded again for each call by both, so that equal seeds and
equal calls draw equal numbers, other ones than the CPU's of that seed.
"""

import contextlib
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from typing_extensions import Self

from opcheck.common.versions import Version
from opcheck.common.yaml_text import load_shipped
from opcheck.simulator.target_reads import READS, is_before
from opcheck.tracing.torch_private.backend import generator_class

#: bytes of Philox's counters, before the seed and the offset
_COUNTERS = 28
_WORD = 2**64
#: splits the streams of one seed: those of the CPU, and of each offset
_STEP = 0x9E3779B97F4A7C15


#: A build with CUDA would search for its driver (aten/src/ATen/detail/CUDAHooksInterface.h, 2.13).
_NO_CUDA: str = load_shipped(Path(__file__).with_suffix(".yaml"))["no_cuda"]


class Generator(torch.Generator):
    """``torch.Generator``: a generator of ``mps``, or torch's own."""

    _place: torch.device
    #: the seed of the stream, and how many calls have drawn from it
    begun_at: int
    calls: int

    def __new__(cls, device: Any = "cpu") -> Self:
        """Return a new generator."""
        place = torch.device(device)
        if place.type == "cuda":
            raise RuntimeError(_NO_CUDA)
        # C++ refuses a generator for any other device that no Mac has.
        base = "cpu" if place.type == "mps" else place
        result = super().__new__(cls, base)  # type: ignore[call-arg]  # the stub has __init__
        result._place = place
        result.begun_at, result.calls = generator_class.initial_seed(result), 0
        return result

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # the stub has an attribute
        """The requested device."""
        return self._place

    def _is_on_mps(self) -> bool:
        return self._place.type == "mps"

    @staticmethod
    def _words() -> int:
        # The state of earlier releases ends with the seed: the stream begins again there.
        return 1 if READS.ask(is_before, Version(2, 5)) else 2

    def manual_seed(self, seed: int) -> Self:
        """Begin the stream of this seed."""
        super().manual_seed(seed)
        self.begun_at, self.calls = super().initial_seed() % _WORD, 0
        return self

    def seed(self) -> int:
        """Begin the stream of a random seed, and return the seed."""
        self.begun_at, self.calls = super().seed(), 0
        return self.begun_at

    def initial_seed(self) -> int:
        """Return the seed of the stream."""
        return self.begun_at if self._is_on_mps() else super().initial_seed()

    def get_state(self) -> torch.Tensor:
        """Return the state, a CPU tensor of bytes."""
        if not self._is_on_mps():
            return super().get_state()
        words = (self.begun_at, self.calls)[: self._words()]
        packed = bytes(_COUNTERS) + struct.pack(f"<{len(words)}Q", *words)
        return torch.tensor(list(packed), dtype=torch.uint8, device="cpu")

    def set_state(self, new_state: torch.Tensor) -> Self:
        """Set the state that ``get_state`` returned.

        Raises:
            TypeError: it is no CPU tensor of bytes.
            RuntimeError: it is of another generator's size.
        """
        state = checked_state(new_state)
        if not self._is_on_mps():
            super().set_state(state)
            return self
        words = self._words()
        if state.numel() != _COUNTERS + 8 * words:
            raise RuntimeError("RNG state is wrong size")
        packed = bytes(state.tolist())[_COUNTERS:]
        self.begun_at, self.calls = (*struct.unpack(f"<{words}Q", packed), 0)[:2]
        return self

    def clone_state(self) -> Self:
        """Return a generator on the same device that draws the same numbers."""
        return type(self)(self._place).set_state(self.get_state())

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes a copy on the same device, or another process a generator of its own."""
        return _restore, (self._place, self.get_state())

    def begin_call(self) -> None:
        """Make the CPU's generator below draw the numbers of the next call."""
        self.calls += 1
        super().manual_seed((self.begun_at + self.calls * _STEP) % _WORD)


def _restore(place: torch.device, state: torch.Tensor) -> Generator:
    return Generator(place).set_state(state)


def checked_state(state: torch.Tensor) -> torch.Tensor:
    """Return the state of a generator, a CPU tensor on every device (ATen/Context.h, ``check_rng_state``).

    Raises:
        TypeError: it is not, as after ``torch.load(..., map_location="mps")``.
    """
    if state.device.type != "cpu" or state.dtype is not torch.uint8:
        raise TypeError("RNG state must be a torch.ByteTensor")
    return state


#: the default generator of ``mps:0``
DEFAULT = Generator("mps")


@contextlib.contextmanager
def keep_generators() -> Iterator[None]:
    """Leave the default generators of the CPU and of ``mps`` as they are."""
    before = DEFAULT.begun_at, DEFAULT.calls
    try:
        with torch.random.fork_rng(devices=()):
            yield
    finally:
        DEFAULT.begun_at, DEFAULT.calls = before


@contextlib.contextmanager
def draw_on_mps(generator: Any) -> Iterator[None]:
    """Draw from the default generator of ``mps`` for the length of one call; the CPU's stays as it is.

    Args:
        generator: the program's own, which DeviceMode has prepared; None: the default generator.
    """
    if generator is not None:
        yield
        return
    cpu = torch.default_generator
    before = cpu.get_state()
    DEFAULT.begin_call()
    cpu.set_state(generator_class.get_state(DEFAULT))
    try:
        yield
    finally:
        cpu.set_state(before)


#: torch/utils/checkpoint.py: the functions that call the program again, in the order of ``use_reentrant`` (2.1 to
#: 2.15) and without it (``unpack``, up to 2.0).
_CHECKPOINT = str(Path(torch.__file__).parent / "utils" / "checkpoint.py")
_RECOMPUTES = frozenset({"backward", "recompute_fn", "unpack"})


def is_recomputed() -> bool:
    """Return whether torch.utils.checkpoint computes a forward pass again and is to keep the state of generators.

    It keeps the CPU's, and that of a device whose module has ``_initialized``: ``torch.mps`` has it in no release.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_filename == _CHECKPOINT and code.co_name in _RECOMPUTES:
            names = frame.f_locals
            keeper = names.get("ctx")
            return bool(getattr(keeper, "preserve_rng_state", names.get("preserve_rng_state")))
        frame = frame.f_back
    return False


# torch/mps/__init__.py and torch/random.py; each name needs a function of its own (torch/_dynamo/trace_rules.py).


def _manual_seed(seed: int) -> None:
    DEFAULT.manual_seed(seed)


def _draw_seed() -> None:
    DEFAULT.seed()


def _rng_state(*_: Any) -> torch.Tensor:
    return DEFAULT.get_state()


def _set_rng_state(new_state: torch.Tensor, *_: Any) -> None:
    DEFAULT.set_state(new_state)


def _set_cpu_rng_state(new_state: torch.Tensor) -> None:
    torch.default_generator.set_state(checked_state(new_state))


#: owner, name and replacement
REPLACEMENTS: tuple[tuple[Any, str, Any], ...] = (
    (torch, "Generator", Generator),
    (torch.mps, "manual_seed", _manual_seed),
    (torch.mps, "seed", _draw_seed),
    (torch.mps, "get_rng_state", _rng_state),
    (torch.mps, "set_rng_state", _set_rng_state),
    (torch, "set_rng_state", _set_cpu_rng_state),
    (torch.random, "set_rng_state", _set_cpu_rng_state),
)
