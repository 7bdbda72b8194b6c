"""Programs of ``torch.export``, and fake tensors.

Reading a program imports sympy and takes a second, so each import waits until it is needed.
"""

import importlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch

from opcheck.tracing.torch_private import lazily, require_names

_READING = "reading a file of torch.export"
_SERIALIZER = "torch._export.serde.serialize"

RECONSTRUCT_FAKE_TENSOR = f"{_SERIALIZER}._reconstruct_fake_tensor"
"""The name that lets a pickle of ``torch.export`` rebuilds a tensor without values.

Required to read it; read in 2.8, 2.9.1, 2.13 and 2.15.
"""

INPUT_CHECK = "_check_input_constraints_pre_hook"
"""The name of the hook that compares inputs with those of the export (torch/export/_unlift.py).

Optional: without it, inputs that the program does not take are found when it runs.
"""

with require_names("exporting a program"):
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    # Tensors without values, and the mode that makes them. Required.


def dtypes_by_number() -> Mapping[int, torch.dtype]:
    """Return the dtypes by the numbers that a ``.pt2`` file has for them. Required to read it."""
    return lazily(f"{_SERIALIZER}:_SERIALIZE_TO_TORCH_DTYPE", _READING)


def functions_of_sizes() -> Collection[Any]:
    """Return the Python functions that compute with sizes in a graph. Required to read a ``.pt2`` file."""
    return lazily(f"{_SERIALIZER}:_SYM_OPS", _READING)


def deserialize(
    document: dict[str, Any], state: dict[str, Any], constants: dict[str, Any], inputs: Any
) -> torch.export.ExportedProgram:
    """Return the program of a JSON document. Required to read a ``.pt2`` file.

    Args:
        document: the content of the file's graph, which the caller has made safe.
        state: the parameters and buffers by name.
        constants: the other tensors by name.
        inputs: a tuple of the example arguments and keyword arguments, or None.
    """
    read = lazily(f"{_SERIALIZER}:_dict_to_dataclass", _READING)
    deserializer = lazily(f"{_SERIALIZER}:ExportedProgramDeserializer", _READING)()
    form = lazily("torch._export.serde.schema:ExportedProgram", _READING)
    return deserializer.deserialize(read(form, document), state, constants, inputs)


def is_predispatch_function(name: str) -> bool:
    """Return whether ``torch._functorch.predispatch`` has a function of this name.

    ``torch.vmap`` and ``torch.func.grad`` leave them in a graph (2.9 and newer). Optional: 2.8 has
    none.
    """
    try:
        module = importlib.import_module("torch._functorch.predispatch")
    except ImportError:
        return False
    return getattr(getattr(module, name, None), "__module__", "") == module.__name__


def with_tensors(
    program: torch.export.ExportedProgram,
    *,
    state: dict[str, Any],
    constants: dict[str, Any],
    inputs: Any,
    graph: torch.fx.GraphModule,
) -> None:
    """Give a copied program other tensors and another graph. Required to emulate an export."""
    values = {"_state_dict": state, "_constants": constants, "_example_inputs": inputs, "_graph_module": graph}
    with require_names("exporting on an emulated Mac"):
        for name in values:
            getattr(program, name)
    vars(program).update(values)


__all__ = ["FakeTensor", "FakeTensorMode"]


# -- PyTorch's operator database, which its own tests run through. Tried on 2.11 and 2.13 --


def operator_database() -> Iterable[Any]:
    """Return all ``OpInfo`` records.

    The import takes seconds and needs expecttest and scipy.

    Raises:
        ImportError: what the database needs in addition to torch is not installed.
    """
    return importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
