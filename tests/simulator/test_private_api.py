"""Each private use of PyTorch by itself, in the order of the table in CONTRIBUTING.md.

Where a new torch breaks a test of the simulation, these say which of its parts has moved.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C import DispatchKey, DispatchKeySet
from torch.utils import _python_dispatch

from opcheck.simulator.tensor import wrap
from opcheck.simulator.tensor_meta import spec_of

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
aten = torch.ops.aten
KEYS = DispatchKeySet(DispatchKey.MPS) | DispatchKeySet(DispatchKey.AutogradMPS)


class Wrapper(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return wrapper(3) if func is aten.relu.default else NotImplemented


def wrapper(size: int) -> torch.Tensor:
    cpu = torch.device("cpu")
    return torch.Tensor._make_wrapper_subclass(
        Wrapper, (size,), device=cpu, _extra_dispatch_keys=KEYS
    )


# -- simulator/tensor.py -------------------------------------------------------------------------------------


def test_a_wrapper_takes_keys_of_another_device() -> None:
    tensor = wrapper(2)
    assert torch._C._dispatch_keys(tensor).has(DispatchKey.MPS)
    assert torch._C._dispatch_keys(tensor).has(DispatchKey.AutogradMPS)
    assert tensor.device.type == "cpu"


def test_there_is_a_key_for_autocast() -> None:
    key = DispatchKey.AutocastMPS  # type: ignore[attr-defined]  # the stub lacks it
    assert DispatchKeySet(key).has(key)


def test_a_wrapper_has_no_function_hook_of_its_own() -> None:
    assert type(torch.relu(wrapper(3))) is Wrapper
    assert not torch.overrides.has_torch_function((wrapper(3),))


def test_torch_parses_the_arguments_of_to() -> None:
    parse: Any = torch._C._nn._parse_to  # the stub wants a copy, which the parser knows not
    parsed = parse("cpu", torch.float16, non_blocking=True)
    assert parsed == (torch.device("cpu"), torch.float16, True, None)


def test_a_parameter_may_be_of_another_class() -> None:
    tensor = wrapper(2)
    assert not isinstance(tensor, torch.nn.Parameter)
    tensor._is_param = True
    assert isinstance(tensor, torch.nn.Parameter)


def test_data_that_is_not_there_is_refused() -> None:
    tensor = wrapper(2)
    torch._C._set_throw_on_mutable_data_ptr(tensor)
    with pytest.raises(RuntimeError, match="Cannot access data pointer"):
        tensor.data_ptr()


# -- simulator/dispatcher.py, bodies.py ----------------------------------------------------------------------


class Seen(_python_dispatch.TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def test_a_mode_sees_every_call() -> None:
    with Seen() as seen:
        torch.ones(2).relu()
    assert seen.names == ["aten::ones", "aten::relu"]


def test_a_mode_may_do_without_dynamo() -> None:
    # The base class asks it, or wraps what it has anyway: a mode of ours is left alone in both cases.
    assert "__wrapped__" not in vars(Seen.__torch_dispatch__)


def test_the_body_of_a_composite_runs_by_its_key() -> None:
    x = torch.ones(2, 2)
    with Seen() as seen:
        aten.linear.default._op_dk(DispatchKey.CompositeImplicitAutograd, x, x)
    assert seen.names == ["aten::t", "aten::mm"]


def test_metadata_is_exchanged_below_dispatch() -> None:
    tensor, fresh = wrapper(2), wrapper(5)
    with torch._C._DisableTorchDispatch():
        torch._C.TensorBase.data.__set__(tensor, fresh)  # type: ignore[attr-defined]
    assert tensor.shape == (5,)


def test_below_autograd_nothing_is_tracked() -> None:
    x = torch.ones(2, requires_grad=True)
    with torch._C._AutoDispatchBelowAutograd():
        assert not aten.relu.default(x).requires_grad


# -- simulator/routes.py, mirror.py --------------------------------------------------------------------------


def test_schemas_say_what_is_written_and_aliased() -> None:
    schema = aten.add_.Tensor._schema
    written = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
    assert written == ["self"]
    view = aten.view.default._schema
    base, result = view.arguments[0].alias_info, view.returns[0].alias_info
    assert base is not None
    assert result is not None
    assert base.before_set == result.before_set
    several = aten.unbind.int._schema.arguments[0].alias_info
    assert several is not None
    assert "*" in several.after_set


def test_the_dispatcher_tells_its_kernels() -> None:
    assert aten.linear.default.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)
    assert torch._C._dispatch_has_kernel_for_dispatch_key("aten::relu", "CPU")
    assert torch._C._dispatch_has_kernel("aten::relu")
    assert not torch._C._dispatch_has_kernel("aten::no_such_operator")
    assert torch._C._should_allow_numbers_as_tensors("add")
    assert not torch._C._should_allow_numbers_as_tensors("relu")


def test_a_library_is_taken_back() -> None:
    before = torch._C._dispatch_dump_table("aten::relu")
    library = torch.library.Library("aten", "IMPL", "MPS")
    library.impl("aten::relu", lambda x: x)
    assert torch._C._dispatch_has_kernel_for_dispatch_key("aten::relu", "MPS")
    library._destroy()
    assert torch._C._dispatch_dump_table("aten::relu") == before


# -- simulator/autocast.py -----------------------------------------------------------------------------------


def test_a_key_is_excluded_for_a_while() -> None:
    key = DispatchKey.AutocastMPS  # type: ignore[attr-defined]
    with torch.autocast("mps"):
        assert not torch._C._dispatch_tls_local_exclude_set().has(key)
        with torch._C._ExcludeDispatchKeyGuard(DispatchKeySet(key)):
            assert torch._C._dispatch_tls_local_exclude_set().has(key)


def test_autocast_is_made_by_names_that_can_be_replaced() -> None:
    module = torch.amp.autocast_mode
    arguments = [*inspect.signature(module.autocast.__init__).parameters]
    assert arguments == ["self", "device_type", "dtype", "enabled", "cache_enabled"]
    assert module.is_autocast_available is torch.amp.is_autocast_available
    made = module.autocast("mps", None, enabled=False)
    assert (made._enabled, made.fast_dtype) == (False, torch.get_autocast_dtype("mps"))
    assert callable(torch.clear_autocast_cache)


# -- simulator/nodes.py, capture/backward.py, device/emulator/modules.py --------------------------------------------


def test_the_engine_tells_its_node_and_the_sequence_its_call() -> None:
    before = torch._C._autograd._get_sequence_nr()
    y = torch.ones(2, requires_grad=True).exp()
    assert torch._C._autograd._get_sequence_nr() == before + 1
    seen: list[tuple[str, int]] = []

    def note(_: torch.Tensor) -> None:
        node = torch._C._current_autograd_node()
        seen.append((node.name(), node._sequence_nr()))

    y.register_hook(note)
    y.sum().backward()
    assert seen == [("ExpBackward0", before)]


def test_the_engine_is_called_by_a_name_that_can_be_replaced() -> None:
    graph = importlib.import_module("torch.autograd.graph")
    assert vars(torch.autograd)["_engine_run_backward"] is graph._engine_run_backward


def test_the_stack_of_function_modes_can_be_read() -> None:
    with torch.overrides.TorchFunctionMode() as mode:
        assert torch.overrides._get_current_function_mode_stack() == [mode]


# -- simulator/mac.py, device.py, backend.py -----------------------------------------------------------------


def test_only_tensors_of_the_cpu_may_be_lifted() -> None:
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(not before)
    try:
        assert torch._C._only_lift_cpu_tensors() is not before
    finally:
        torch._C._set_only_lift_cpu_tensors(before)


def test_the_constructors_that_take_a_device_are_listed() -> None:
    from torch.utils import _device

    assert {torch.zeros, torch.tensor, torch.arange} <= set(_device._device_constructors())
    assert _device.CURRENT_DEVICE is None


@pytest.mark.parametrize("name", ["_mps_is_available", "_mps_is_on_macos_or_newer", "_has_mps"])
def test_python_asks_c_for_mps_by_these_names(name: str) -> None:
    assert hasattr(torch._C, name)


def test_is_available_has_a_plain_function_behind_it() -> None:
    # torch/_dynamo/trace_rules.py of 2.15 reads it; before 2.10 or so there is none, and nobody asks.
    function = torch.backends.mps.is_available
    assert inspect.isfunction(inspect.unwrap(function))


# -- simulator/branches.py, twins.py, higher.py --------------------------------------------------------------


def test_the_kernels_that_a_mac_registers_from_python_are_there() -> None:
    refs = importlib.import_module("torch._refs")
    decompositions = importlib.import_module("torch._decomp.decompositions")
    assert callable(refs.native_group_norm)
    assert callable(refs.var_mean)
    assert callable(decompositions.native_group_norm_backward)


def test_higher_order_operators_hold_their_eager_form() -> None:
    from torch._higher_order_ops.cond import cond_op

    kernel = cond_op.py_kernels[DispatchKey.CompositeExplicitAutograd]
    assert "_get_current_dispatch_mode" in inspect.unwrap(kernel).__globals__


# -- simulator/printing.py, storage.py, tensor.py ------------------------------------------------------------


def test_printing_is_in_two_parts() -> None:
    x = torch.ones(2)
    with torch._C.DisableTorchFunction(), _python_dispatch._disable_current_modes():
        text = torch._tensor_str._tensor_str(x, len("tensor("))
        assert torch._tensor_str._str_intern(x, tensor_contents=text) == "tensor([1., 1.])"


def test_tensors_are_rebuilt_by_these_names() -> None:
    x = torch.arange(3.0)
    again = torch._utils._rebuild_tensor_v2(x._typed_storage(), 1, (2,), (1,), False, {})
    assert again.tolist() == [1, 2]
    assert type(torch._utils._rebuild_parameter(x, True, {})) is torch.nn.Parameter


def test_data_takes_the_keys_of_another_tensor() -> None:
    """c10/core/TensorImpl.h, has_compatible_shallow_copy_type: both are dense."""
    parameter = torch.nn.Parameter(torch.ones(1))
    moved = wrap(spec_of(torch.ones(2)))
    parameter.data = moved
    assert type(parameter) is torch.nn.Parameter
    assert torch._C._dispatch_keys(parameter).has(torch._C.DispatchKey.MPS)
    assert not torch._C._dispatch_keys(parameter).has(torch._C.DispatchKey.Python)
    parameter.data = torch.ones(3)
    assert not torch._C._dispatch_keys(parameter).has(torch._C.DispatchKey.MPS)


def test_each_tensor_has_a_version_of_its_own() -> None:
    spec = spec_of(torch.ones(2))
    first, second = wrap(spec), wrap(spec)
    torch._C._autograd._unsafe_set_version_counter((first,), (5,))
    assert (first._version, second._version) == (5, 0)


# -- capture ------------------------------------------------------------------------------------------------


def test_the_name_that_imports_the_compiler_can_be_replaced() -> None:
    compile_ = importlib.import_module("torch._compile")
    assert callable(compile_._disable_dynamo)
    assert vars(torch)["_disable_dynamo"] is compile_._disable_dynamo


def test_modules_keep_their_tensors_in_two_tables() -> None:
    module = torch.nn.BatchNorm1d(2)
    assert {*module._parameters} == {"weight", "bias"}
    assert {*module._buffers} == {"running_mean", "running_var", "num_batches_tracked"}
    assert torch.nn.Module.__call__ is not torch.nn.Module.forward
    assert issubclass(torch.nn.Dropout, torch.nn.modules.dropout._DropoutNd)


def test_a_graph_has_a_root() -> None:
    graph = torch.fx.Graph()
    first = graph.placeholder("x")
    assert graph._root.next is first


def test_modules_run_with_other_tensors() -> None:
    stateless = importlib.import_module("torch.nn.utils.stateless")
    module = torch.nn.Linear(1, 1, bias=False)
    with stateless._reparametrize_module(module, {"weight": torch.full((1, 1), 3.0)}):
        assert module(torch.ones(1)).item() == 3


def test_trees_are_walked() -> None:
    from torch.utils import _pytree as tree

    assert [*tree.tree_iter([1, {"a": 2}])] == [1, 2]
    assert tree.tree_map_only(int, str, [1, 2.0]) == ["1", 2.0]
    pairs = tree.tree_flatten_with_path({"a": [1]})[0]
    assert [tree.keystr(path) for path, _ in pairs] == ["['a'][0]"]


# -- the table ----------------------------------------------------------------------------------------------


def test_the_files_of_the_table_exist() -> None:
    text = CONTRIBUTING.read_text(encoding="utf-8")
    table = text.partition("### Private API of PyTorch")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    files: list[str] = []
    for row in rows:
        folder = ""
        for name in re.findall(r"`([^`]+)`", row):
            for each in _expanded(name):
                folder = each.rpartition("/")[0] if "/" in each else folder
                files.append(each if "/" in each else f"{folder}/{each}")
    root = CONTRIBUTING.parent
    missing = [
        file for file in files if not ((root / file).exists() or (root / "opcheck" / file).exists())
    ]
    assert len(files) > 20
    assert not missing


def _expanded(name: str) -> list[str]:
    found = re.fullmatch(r"(.*)\{(.*)\}(.*)", name)
    return [f"{found[1]}{part}{found[3]}" for part in found[2].split(",")] if found else [name]
