"""Each private use of PyTorch by itself: on a new torch, these tests tell which name has moved."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import opcheck
from opcheck.common.errors import UnsupportedTorchError
from opcheck.simulator.dispatch.tensor import wrap
from opcheck.simulator.dispatch.tensor_meta import spec_of
from opcheck.tracing import torch_private
from opcheck.tracing.torch_private import (
    AttributePlace,
    backend,
    compilation,
    dispatch,
    export,
    modules,
    tensors,
    trees,
)
from opcheck.tracing.torch_private.dispatch import DispatchKey, DispatchKeySet

PACKAGE = Path(opcheck.__file__).parent
HERE = Path(torch_private.__file__).parent
aten = torch.ops.aten
KEYS = DispatchKeySet(DispatchKey.MPS) | DispatchKeySet(DispatchKey.AutogradMPS)


class Wrapper(torch.Tensor):
    __torch_function__ = dispatch.no_function_hook  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return wrapper(3) if func is aten.relu.default else NotImplemented


def wrapper(size: int) -> torch.Tensor:
    cpu = torch.device("cpu")
    return tensors.make_wrapper_subclass(Wrapper, (size,), device=cpu, _extra_dispatch_keys=KEYS)


# -- tensors ---------------------------------------------------------------------------------------


def test_a_wrapper_takes_keys_of_another_device() -> None:
    tensor = wrapper(2)
    assert torch._C._dispatch_keys(tensor).has(DispatchKey.MPS)
    assert torch._C._dispatch_keys(tensor).has(DispatchKey.AutogradMPS)
    assert tensor.device.type == "cpu"


def test_there_is_a_key_for_autocast() -> None:
    assert DispatchKeySet(dispatch.AUTOCAST_KEY).has(dispatch.AUTOCAST_KEY)


def test_a_wrapper_has_no_function_hook_of_its_own() -> None:
    assert type(torch.relu(wrapper(3))) is Wrapper
    assert not torch.overrides.has_torch_function((wrapper(3),))


def test_torch_parses_the_arguments_of_to() -> None:
    parsed = tensors.parse_to("cpu", torch.float16, non_blocking=True)
    assert parsed == (torch.device("cpu"), torch.float16, True, None)


def test_a_parameter_may_be_of_another_class() -> None:
    tensor = wrapper(2)
    assert not isinstance(tensor, torch.nn.Parameter)
    tensor._is_param = True
    assert isinstance(tensor, torch.nn.Parameter)


def test_data_that_is_not_there_is_refused() -> None:
    tensor = wrapper(2)
    tensors.refuse_data_access(tensor)
    with pytest.raises(RuntimeError, match="Cannot access data pointer"):
        tensor.data_ptr()


# -- dispatch --------------------------------------------------------------------------------------


class Seen(dispatch.DispatchMode):
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def test_a_mode_sees_every_call() -> None:
    with Seen() as seen:
        torch.ones(2).relu()
    assert seen.names == ["aten::ones", "aten::relu"]


def test_a_mode_may_do_without_dynamo() -> None:
    # The base class asks it, or wraps what it has anyway: a mode of ours is left alone in both
    # cases.
    assert "__wrapped__" not in vars(Seen.__torch_dispatch__)


def test_the_body_of_a_composite_runs_by_its_key() -> None:
    x = torch.ones(2, 2)
    with Seen() as seen:
        dispatch.body_of(aten.linear.default)(DispatchKey.CompositeImplicitAutograd, x, x)
    assert seen.names == ["aten::t", "aten::mm"]


def test_metadata_is_exchanged_below_dispatch() -> None:
    tensor, fresh = wrapper(2), wrapper(5)
    with dispatch.without_dispatch_modes():
        tensors.set_data(tensor, fresh)
    assert tensor.shape == (5,)


def test_below_autograd_nothing_is_tracked() -> None:
    x = torch.ones(2, requires_grad=True)
    with dispatch.below_autograd():
        assert not aten.relu.default(x).requires_grad


def test_schemas_say_what_is_written_and_aliased() -> None:
    schema = dispatch.schema_of(aten.add_.Tensor)
    written = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
    assert written == ["self"]
    view = dispatch.schema_of(aten.view.default)
    base, result = view.arguments[0].alias_info, view.returns[0].alias_info
    assert base is not None
    assert result is not None
    assert base.before_set == result.before_set
    several = dispatch.schema_of(aten.unbind.int).arguments[0].alias_info
    assert several is not None
    assert "*" in several.after_set


def test_the_dispatcher_tells_its_kernels() -> None:
    assert aten.linear.default.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)
    assert dispatch.has_kernel("aten::relu", "CPU")
    assert dispatch.has_schema("aten::relu")
    assert not dispatch.has_schema("aten::no_such_operator")
    assert dispatch.takes_numbers_as_tensors("add")
    assert not dispatch.takes_numbers_as_tensors("relu")


def test_a_library_is_taken_back() -> None:
    before = torch._C._dispatch_dump_table("aten::relu")
    library = torch.library.Library("aten", "IMPL", "MPS")
    library.impl("aten::relu", lambda x: x)
    assert dispatch.has_kernel("aten::relu", "MPS")
    dispatch.unregister(library)
    assert torch._C._dispatch_dump_table("aten::relu") == before


def test_a_key_is_excluded_for_a_while() -> None:
    key = dispatch.AUTOCAST_KEY
    with torch.autocast("mps"):
        assert not torch._C._dispatch_tls_local_exclude_set().has(key)
        with dispatch.excluding(DispatchKeySet(key)):
            assert torch._C._dispatch_tls_local_exclude_set().has(key)


def test_autocast_is_made_by_names_that_can_be_replaced() -> None:
    module = torch.amp.autocast_mode
    arguments = [*inspect.signature(module.autocast.__init__).parameters]
    assert arguments == ["self", "device_type", "dtype", "enabled", "cache_enabled"]
    assert module.is_autocast_available is torch.amp.is_autocast_available
    made = module.autocast("mps", None, enabled=False)
    assert (made._enabled, made.fast_dtype) == (False, torch.get_autocast_dtype("mps"))
    assert callable(torch.clear_autocast_cache)


# -- autograd --------------------------------------------------------------------------------------


def test_the_engine_tells_its_node_and_the_sequence_its_call() -> None:
    before = tensors.next_sequence_number()
    y = torch.ones(2, requires_grad=True).exp()
    assert tensors.next_sequence_number() == before + 1
    seen: list[tuple[str, int]] = []

    def note(_: torch.Tensor) -> None:
        node = tensors.running_node()
        seen.append((node.name(), tensors.sequence_number_of(node)))

    y.register_hook(note)
    y.sum().backward()
    assert seen == [("ExpBackward0", before)]


def test_the_engine_is_called_by_a_name_that_can_be_replaced() -> None:
    graph = importlib.import_module("torch.autograd.graph")
    assert tensors.RUN_BACKWARD.value() is graph._engine_run_backward


def test_the_stack_of_function_modes_can_be_read() -> None:
    with torch.overrides.TorchFunctionMode() as mode:
        assert dispatch.function_mode_stack() == [mode]


# -- backend ---------------------------------------------------------------------------------------


def test_only_tensors_of_the_cpu_may_be_lifted() -> None:
    before = backend.only_cpu_lifted()
    backend.set_only_cpu_lifted(not before)
    try:
        assert backend.only_cpu_lifted() is not before
    finally:
        backend.set_only_cpu_lifted(before)


def test_the_constructors_that_take_a_device_are_listed() -> None:
    assert {torch.zeros, torch.tensor, torch.arange} <= set(backend.constructors())
    assert backend.default_device() is None
    torch.set_default_device("meta")
    try:
        assert backend.default_device() == torch.device("meta")
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("asked", [backend.MPS_IS_AVAILABLE, backend.MPS_IS_ON_MACOS, backend.HAS_MPS], ids=str)
def test_python_asks_c_for_mps_by_these_names(asked: AttributePlace) -> None:
    asked.value()


def test_is_available_has_a_plain_function_behind_it() -> None:
    # torch/_dynamo/trace_rules.py of 2.15 reads it; before 2.10 or so there is none, and nobody
    # asks.
    function = torch.backends.mps.is_available
    assert inspect.isfunction(inspect.unwrap(function))


# -- kernels in Python -----------------------------------------------------------------------------


def test_the_kernels_that_a_mac_registers_from_python_are_there() -> None:
    x = torch.randn(1, 2, 3)
    in_python = dispatch.group_norm_in_python(x, None, None, 1, 2, 3, 1, 1e-5)
    torch.testing.assert_close(in_python[0], torch.group_norm(x, 1))
    torch.testing.assert_close(dispatch.var_mean_in_python(x), torch.var_mean(x))
    assert callable(dispatch.group_norm_backward_in_python)


def test_higher_order_operators_hold_their_eager_form() -> None:
    from torch._higher_order_ops.cond import cond_op

    kernel = cond_op.py_kernels[DispatchKey.CompositeExplicitAutograd]
    assert "_get_current_dispatch_mode" in inspect.unwrap(kernel).__globals__


# -- printing, pickling, data ----------------------------------------------------------------------


def test_printing_is_in_two_parts() -> None:
    x = torch.ones(2)
    with dispatch.without_function_modes(), dispatch.disable_modes():
        text = tensors.text_of_contents(x, len("tensor("))
        assert tensors.text_of_tensor(x, tensor_contents=text) == "tensor([1., 1.])"


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


# -- modules, trees --------------------------------------------------------------------------------


def test_the_name_that_imports_the_compiler_can_be_replaced() -> None:
    assert vars(torch)["_disable_dynamo"] is dispatch.disable_dynamo


def test_modules_keep_their_tensors_in_two_tables() -> None:
    module = torch.nn.BatchNorm1d(2)
    assert {*modules.parameters_of(module)} == {"weight", "bias"}
    assert {*modules.buffers_of(module)} == {"running_mean", "running_var", "num_batches_tracked"}
    assert torch.nn.Module.__call__ is not torch.nn.Module.forward
    assert issubclass(torch.nn.Dropout, modules.Dropout)


def test_a_graph_has_a_root() -> None:
    graph = torch.fx.Graph()
    first = graph.placeholder("x")
    assert modules.root_of(graph).next is first


def test_modules_run_with_other_tensors() -> None:
    module = torch.nn.Linear(1, 1, bias=False)
    with modules.with_other_tensors(module, {"weight": torch.full((1, 1), 3.0)}):
        assert module(torch.ones(1)).item() == 3


def test_trees_are_walked() -> None:
    assert [*trees.tree_iter([1, {"a": 2}])] == [1, 2]
    assert trees.tree_map_only(int, str, [1, 2.0]) == ["1", 2.0]
    pairs = trees.tree_flatten_with_path({"a": [1]})[0]
    assert [trees.keystr(path) for path, _ in pairs] == ["['a'][0]"]


def test_other_reads_of_modules_and_tensors() -> None:
    linear = torch.nn.Linear(1, 1)
    assert modules.strip_compiled(torch.compile(linear, backend="eager")) is linear
    assert modules.strip_compiled(linear) is linear
    assert modules.apply_to_tensors(linear, lambda tensor: tensor.double()).weight.dtype == torch.float64
    assert modules.lines_of(torch.fx.symbolic_trace(linear)) is not None
    x = torch.ones(4)
    assert tensors.storage_address(x.untyped_storage()) == tensors.storage_address(x[1:].untyped_storage())
    typed = torch.TypedStorage(wrap_storage=x.untyped_storage(), dtype=x.dtype, _internal=True)
    assert tensors.untyped_memory(typed).data_ptr() == x.data_ptr()
    assert tensors.is_view(x[1:])
    assert tensors.negative_view(x).is_neg()
    sparse = x.to_sparse()
    assert tensors.sparse_indices(sparse).shape == (1, 4)
    assert tensors.sparse_values(sparse).shape == (4,)


# -- export, compilation ---------------------------------------------------------------------------


def test_a_program_is_read_by_these_names() -> None:
    assert torch.float32 in export.dtypes_by_number().values()
    assert any(each.__name__ == "add" for each in export.functions_of_sizes())
    assert not export.is_predispatch_function("no_such_function")


def test_dynamo_counts_under_these_names() -> None:
    compilation.reset_dynamo()
    torch.compile(torch.sin, backend="eager")(torch.ones(1))
    assert compilation.counters()["stats"]["unique_graphs"] == 1
    assert not list(compilation.graph_breaks())
    assert len(list(compilation.compilation_metrics())) == 1
    assert "inductor" in compilation.backends()
    assert {"eager", "aot_eager"} <= {*compilation.backends(exclude_tags=())}
    assert callable(compilation.backend("eager"))
    compilation.reset_dynamo()


def test_the_shaders_of_all_kernels_are_compiled_at_once_since_2_13() -> None:
    release = tuple(int(part) for part in torch.__version__.split(".")[:2])
    assert (compilation.compile_shaders() is not None) == (release >= (2, 13))
    assert compilation.load_wrapper().value()


# -- the rule --------------------------------------------------------------------------------------


def test_a_missing_name_is_an_error_of_three_lines() -> None:
    with pytest.raises(UnsupportedTorchError) as caught, torch_private.require_names("doing it"):
        torch._C._no_such_name  # type: ignore[attr-defined]  # noqa: B018
    what, where, then = str(caught.value).splitlines()
    assert torch.__version__ in what
    assert "_no_such_name" in what
    assert where == "  in: doing it"
    assert then.startswith("  help: install a torch release")


def test_a_capture_reports_a_missing_name(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import torch\nmodel = torch.nn.ReLU()\n")
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'opcheck.worker.child' in sys.orig_argv:\n"
        "    import torch\n"
        "    del torch._C._dispatch_has_kernel\n"
    )
    arguments = ["audit", "model.py:model", "--input", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "opcheck", *arguments],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 3
    assert f"torch {torch.__version__} lacks a private name that opcheck uses" in done.stderr
    assert "Traceback" not in done.stderr


#: Private attributes that are not PyTorch's: ours on torch.Tensor, those of named tuples, of
#: Python, of transformers.
OURS = {"_mps", "_mps_outer", "_made_on_mps", "_opcheck"}
PYTHONS = {"_asdict", "_fields", "_make", "_replace", "_getframe", "_exit", "_run_exitfuncs", "_showwarnmsg"}
OTHERS = {"_from_config", "_model_mapping", "_class_to_module", "_executor", "_keep_in_fp32_modules"}


def private_uses(path: Path) -> Iterator[str]:
    """The accesses of torch's private names in a file: imports, attributes, names in getattr."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls", "super()")
    }
    for node in ast.walk(tree):
        for name, base in _named(node):
            steps = name.split(".")
            private = [step for step in steps if step.startswith("_") and not step.startswith("__")]
            operator = base.startswith(("aten", "torch.ops."))
            if private and not operator and not {*private} <= own | OURS | PYTHONS | OTHERS:
                yield f"{path.relative_to(PACKAGE)}:{node.lineno} {base}.{name}"  # type: ignore[attr-defined]


def _named(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The dotted names that a node accesses, and what they are accessed of."""
    match node:
        case ast.Import(names):
            yield from ((each.name, "") for each in names if each.name.startswith("torch"))
        case ast.ImportFrom(str(module), names) if module.startswith("torch"):
            yield from ((f"{module}.{each.name}", "") for each in names)
        case ast.Attribute(value, attribute):
            yield attribute, ast.unparse(value)
        case ast.Call(ast.Name("getattr" | "setattr" | "delattr" | "hasattr"), [of, ast.Constant(str(name)), *_]):
            yield name, ast.unparse(of)
        case ast.Tuple([of, ast.Constant(str(name)), *_]) if ast.unparse(of).startswith("torch"):
            yield name, ast.unparse(of)


def test_private_names_of_torch_are_used_here_alone() -> None:
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if HERE not in path.parents]
    assert not [use for path in files for use in private_uses(path)]


def documented_names(path: Path) -> Iterator[tuple[str, str]]:
    """The public names of a module, also those in a ``with`` block, and their docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = [node for node in tree.body if isinstance(node, ast.With)]
    for block in (tree.body, *(node.body for node in guarded)):
        for node, after in zip(block, [*block[1:], None], strict=True):
            match node:
                case ast.FunctionDef(name) | ast.ClassDef(name):
                    yield name, ast.get_docstring(node) or ""
                case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name)):
                    match after:
                        case ast.Expr(ast.Constant(str(text))):
                            yield name, text
                        case _:
                            yield name, ""


@pytest.mark.parametrize("path", sorted({*HERE.glob("*.py")} - {HERE / "__init__.py"}), ids=lambda path: path.stem)
def test_each_name_has_a_docstring_that_tells_what_its_lack_costs(path: Path) -> None:
    names = [(name, text) for name, text in documented_names(path) if not name.startswith("_")]
    assert names
    words = ("Required", "Optional", "Raises")
    assert not [name for name, text in names if not any(word in text for word in words)]
