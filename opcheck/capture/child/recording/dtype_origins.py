"""Where tensors of a dtype that MPS may refuse are made on the CPU: by the constructor and by the run.

What is made on MPS is in the trace.  A tensor of the CPU is not, before it meets MPS: its maker's line is kept here.
"""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from opcheck.capture.word_lists import TABLES
from opcheck.common import documents
from opcheck.common.errors import InputError, ModelLoadError
from opcheck.common.files import describe_missing, is_file
from opcheck.common.replacing import replace_attributes
from opcheck.model.records import WATCHED, Birth, SourceLocation
from opcheck.tracing.source_locations import Site, UserFrames, locate
from opcheck.tracing.torch_private.tensors import storage_address
from opcheck.tracing.torch_private.trees import tensors
from opcheck.weights import reading

_WATCHED = frozenset(getattr(torch, name) for name in WATCHED if hasattr(torch, name))

#: functions that take their dtype from their argument.
_FROM_VALUES = {"torch.from_numpy", "torch.tensor", "torch.as_tensor", "torch.asarray"}

#: What a function's name states of its result.
_BY_NAME = {how: re.compile(pattern) for how, pattern in TABLES["made_by_name"].items()}

#: functions that no torch function mode sees (torch/overrides.py, get_ignored_functions).
_UNSEEN = ("from_numpy", "frombuffer", "from_dlpack")

_MODULE = "torch/nn/modules/module.py"


class Births:
    """The births of the CPU tensors that this process still has; they have no number yet."""

    def __init__(self) -> None:
        # By storage: a parameter and a view share it with the tensor that they were made of.
        self._by_storage: dict[int, Birth] = {}
        self._default: SourceLocation | None = None
        self._frames = UserFrames()

    def note(self, func: Callable[..., Any], args: Any, kwargs: Any, result: Any) -> None:
        """Take the result of one API call, where it is a CPU tensor of a watched dtype."""
        for tensor in _on_cpu(result):
            if tensor.dtype in _WATCHED:
                self._by_storage[_storage(tensor)] = self._describe_made(func, args, kwargs, tensor)

    def origin(self, tensor: torch.Tensor) -> Birth | None:
        """Return how a tensor was made, if it was seen."""
        result = self._by_storage.get(_storage(tensor)) if tensor.dtype in _WATCHED else None
        return result if result is not None and result.dtype == _name(tensor.dtype) else None

    @contextlib.contextmanager
    def while_loading(self) -> Iterator[None]:
        """Record the tensors made inside the block."""
        with self.while_running(), _Watch(self):
            yield

    @contextlib.contextmanager
    def while_running(self) -> Iterator[None]:
        """Record the tensors that no torch function mode sees inside the block."""
        set_dtype = torch.set_default_dtype

        def watch(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
            def call(*args: Any, **kwargs: Any) -> torch.Tensor:
                result = function(*args, **kwargs)
                self.note(function, args, kwargs, result)
                return result

            return call

        def set_default_dtype(dtype: torch.dtype) -> None:
            set_dtype(dtype)
            self._default = locate(self._site()[0])

        changes: list[tuple[Any, str, Any]] = [(torch, name, watch(getattr(torch, name))) for name in _UNSEEN]
        with replace_attributes([*changes, (torch, "set_default_dtype", set_default_dtype)]):
            yield

    def _describe_made(self, func: Callable[..., Any], args: Any, kwargs: Any, result: torch.Tensor) -> Birth:
        arguments = _on_cpu((args, kwargs))
        watched = [tensor for tensor in arguments if _same_trait(tensor.dtype, result.dtype)]
        cached = next((created for created in map(self.origin, watched) if created is not None), None)
        if cached is not None:
            return cached
        site, whole_module = self._site()
        location, dtype = locate(site), _name(result.dtype)
        if watched:
            return Birth(tensor=0, how="before", dtype=dtype, location=location)
        api = resolve_name(func) or f"torch.{getattr(func, '__name__', func)}"
        api = f"Module.{whole_module}" if whole_module else api
        how = "module_cast" if whole_module else _how(api, args, kwargs, result)
        if how == "default_dtype" and self._default is not None:
            how, api, location = "default_dtype_set", "torch.set_default_dtype", self._default
        return Birth(tensor=0, how=how, api=api, dtype=dtype, location=location)

    def _site(self) -> tuple[Site, str]:
        """Return the innermost line of the user's, and the Module method that it called, if it did."""
        frame = sys._getframe(2)
        names = [code.co_name for code in self._frames.inside(frame) if code.co_filename.endswith(_MODULE)]
        methods = [name for name in names if name in {"double", "to", "type"}]
        return self._frames.innermost(frame), methods[-1] if methods else ""


class _Watch(TorchFunctionMode):
    """Hands each API call to the births."""

    def __init__(self, births: Births) -> None:
        super().__init__()
        self._births = births

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record one API call."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self._births.note(func, args, kwargs, result)
        return result


def _how(api: str, args: Any, kwargs: Any, result: torch.Tensor) -> str:
    if kwargs.get("dtype") is not None:
        return "dtype_given"
    if api in _FROM_VALUES and args and type(args[0]).__module__ == "numpy":
        return "numpy" if getattr(args[0], "shape", ()) else "numpy_scalar"
    named = next((how for how, pattern in _BY_NAME.items() if pattern.fullmatch(api)), "")
    if named:
        return named
    if result.dtype.is_complex and any(type(arg) is complex for arg in (*args, *kwargs.values())):
        return "python_complex"
    makes = not _on_cpu((args, kwargs))
    return "default_dtype" if makes and result.dtype == torch.get_default_dtype() else "promotion"


def _on_cpu(value: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors(value) if tensor.device.type in {"cpu", "meta"}]


def _storage(tensor: torch.Tensor) -> int:
    return storage_address(tensor.untyped_storage()) if tensor.layout is torch.strided else id(tensor)


def _same_trait(first: torch.dtype, second: torch.dtype) -> bool:
    """Return whether the second dtype follows from the first: both are double, both complex, or both the same."""
    if first not in _WATCHED:
        return False
    doubles = {torch.float64, torch.complex128}
    return first == second or {first, second} <= doubles or (first.is_complex and second.is_complex)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# -- dtypes in the file of a checkpoint, read without its values and without running code of it ----------------------


def births_in_checkpoint(file: str) -> tuple[Birth, ...]:
    """Return a birth for each tensor in the file whose dtype MPS may refuse, in the file's order.

    Args:
        file: written by torch.save (a state dict, or a container of it), or a .safetensors file.

    Raises:
        InputError: no such file, or it cannot be read as either.
    """
    path = Path(file)
    if not is_file(path):
        raise InputError(
            describe_missing(file),
            context=f"--checkpoint {file}, working directory {Path.cwd()}",
            hint="give the path from the working directory",
        )
    with documents.open_file(path) as stream:
        try:
            stored = reading.read(stream, path.stat().st_size, file, is_whole=False)
        except ModelLoadError as error:
            raise InputError(
                f"cannot read the checkpoint: {error.message[:200]}",
                context=f"--checkpoint {file}",
                hint="give a state dict written by torch.save, or a .safetensors file",
            ) from error
    dtypes = {tensor.name: tensor.dtype for tensor in stored.tensors if tensor.dtype in WATCHED}
    return tuple(Birth(tensor=0, dtype=each, how="file", api=path.name, name=name) for name, each in dtypes.items())
