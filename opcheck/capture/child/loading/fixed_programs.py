"""Programs of ``torch.export``: as a module that runs on the simulated Mac, and what it may be called with."""

import inspect
import io
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from opcheck.capture.child.build import values
from opcheck.capture.request import DEFAULT_TRACER
from opcheck.capture.word_lists import TABLES
from opcheck.common.errors import CaptureError, InputError, ModelLoadError
from opcheck.common.text import one_line
from opcheck.simulator.dispatch.tensor import MPS_DEVICE
from opcheck.tracing.source_locations import describe_raise
from opcheck.tracing.torch_private import modules
from opcheck.tracing.torch_private.export import INPUT_CHECK, FakeTensorMode
from opcheck.tracing.torch_private.trees import tree_leaves, tree_map_only, tree_unflatten

#: Devices whose tensors are neither on a GPU nor on another accelerator.
_HOST = frozenset({"cpu", "meta"})


def as_module(program: torch.export.ExportedProgram) -> torch.fx.GraphModule:
    """Return the program as a module, whose constants are buffers, so that they move with it.

    ``move_to_device_pass`` moves them too (torch/export/passes/__init__.py); ``Module.to`` leaves them behind.
    """
    # 2.9 and newer compile the text of the guards.  The checks of shapes stay: a hook of the module makes them.
    cached = inspect.signature(program.module).parameters
    module: Any = program.module(**{"check_guards": False} if "check_guards" in cached else {})
    for graph in _graphs(module):
        for node in graph.graph.nodes:
            if node.op == "get_attr":
                path, _, name = node.target.rpartition(".")
                holder = graph.get_submodule(path)
                value = vars(holder).get(name)
                if isinstance(value, torch.Tensor):
                    delattr(holder, name)
                    holder.register_buffer(name, value, persistent=False)
    return module


def arguments(program: torch.export.ExportedProgram) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what the program is called with: its example inputs, or tensors of the shapes that it was exported for."""
    if program.example_inputs is not None:
        return program.example_inputs
    nodes = {node.name: node for node in program.graph.nodes}
    kinds = torch.export.graph_signature
    wanted = [each.arg for each in program.graph_signature.input_specs if each.kind is kinds.InputKind.USER_INPUT]
    flat = [
        each.value if isinstance(each, kinds.ConstantArgument) else _value(nodes[each.name].meta.get("val"))
        for each in wanted
    ]
    args, kwargs = tree_unflatten(flat, program.call_spec.in_spec)
    return args, kwargs


def _value(val: Any) -> Any:
    if isinstance(val, torch.Tensor):
        return values(tuple(map(_size, val.shape)), val.dtype)
    return _size(val)


def _size(size: Any) -> Any:
    """Return a symbolic size as it was when the program was exported; two where that is not known."""
    node = getattr(size, "node", None)
    if node is None:
        return size
    return 2 if node.hint is None else node.hint


def read_on_mps(module: torch.nn.Module, *, accelerated: bool = False) -> None:
    """Read the devices in the graphs of a module's exported programs as ``move_to_device_pass`` writes them.

    Args:
        module: may contain exported programs.
        accelerated: tensors of the program were on an accelerator when it was exported: ``cpu`` stays then.
    """
    for graph in [part for child in module.modules() if is_exported(child) for part in _graphs(child)]:
        named = {device.type for node in graph.graph.nodes for device in _devices(node)}
        moved = named - _HOST if accelerated or named - _HOST else {"cpu"}
        if named & moved:

            def move(device: torch.device, moved: set[str] = moved) -> torch.device:
                return MPS_DEVICE if device.type in moved else device

            for node in graph.graph.nodes:
                node.args, node.kwargs = tree_map_only(torch.device, move, (node.args, node.kwargs))
            graph.recompile()


def check_inputs(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], name: str) -> None:
    """Compare the inputs with those of the export.

    Raises:
        InputError: the program takes others.
    """
    if not is_exported(model):
        return
    for hook in modules.pre_hooks_of(model).values():
        if getattr(hook, "__name__", "") != INPUT_CHECK:
            continue
        try:
            hook(model, args, kwargs)
        except Exception as error:
            raise InputError(
                f"the program was exported for other inputs: {one_line(error, 300)}",
                context=name,
                hint=f"give --input {_describe_inputs(model)}, or export it with dynamic_shapes",
            ) from error


def _describe_inputs(model: Any) -> str:
    """Return the inputs that the program was exported with, as --input has them."""
    values = [node.meta.get("val") for node in model.graph.nodes if node.op == "placeholder"]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    written = [
        f"{'x'.join(map(str, each.shape)) or 'scalar'}:{str(each.dtype).removeprefix('torch.')}" for each in tensors
    ]
    return " --input ".join(written) or "as it was exported with"


def _graphs(module: torch.nn.Module) -> Iterator[torch.fx.GraphModule]:
    """Yield the graph of a program, and those of its higher-order operators."""
    yield from (part for part in module.modules() if isinstance(part, torch.fx.GraphModule))


def _devices(node: torch.fx.Node) -> Iterator[torch.device]:
    leaves = tree_leaves((node.args, node.kwargs))
    yield from (leaf for leaf in leaves if isinstance(leaf, torch.device))


# -- training and evaluation ----------------------------------------------------------------------------------------


def set_training(model: torch.nn.Module, name: str, *, training: bool) -> None:
    """Put the model in training or in evaluation mode; an exported program stays as it is.

    Args:
        model: a module, which may contain exported programs and TorchScript.
        name: what the report calls the model.
        training: the mode.

    Raises:
        ModelLoadError: training is requested, and a part of the model can only be run for inference.
    """
    if training:
        refuse_fixed(model, name)
    for module in model.modules():
        if is_exported(module):
            # Its own raises, also where the module around it calls it.
            module.train = types.MethodType(_keep_mode, module)  # type: ignore[method-assign]
    if not (isinstance(model, torch.jit.ScriptModule) and not hasattr(model, "training")):
        model.train(training)


def refuse_fixed(model: torch.nn.Module, name: str) -> None:
    """Refuse a model that cannot be trained.

    Raises:
        ModelLoadError: a part of it is an exported program or a TorchScript module.
    """
    for path, module in model.named_modules():
        kind = _kind(module)
        if kind:
            raise ModelLoadError(
                f"{_ARTICLES[kind]} is audited for inference only, not for training",
                context=f"model {name}" + (f", module {path}" if path else ""),
                hint="to train, name the torch.nn.Module that it was made from, as file.py:attribute",
            )


def find_fixed(model: torch.nn.Module) -> str:
    """Return the first kind of program in the model that was fixed before: a key of request.FIXED, or empty."""
    return next(filter(None, map(_kind, model.modules())), "")


def is_exported(module: torch.nn.Module) -> bool:
    """Return whether ``ExportedProgram.module()`` made it.

    Its ``train`` raises NotImplementedError (torch/export/exported_program.py, 2.8 to 2.15).
    """
    train = vars(module).get("train")
    return getattr(train, "__module__", "") in ("torch.export.exported_program", __name__)


_ARTICLES = {"exported program": "an exported program", "TorchScript": "a TorchScript module"}


def _kind(module: torch.nn.Module) -> str:
    if is_exported(module):
        return "exported program"
    return "TorchScript" if isinstance(module, torch.jit.ScriptModule) else ""


def _keep_mode(module: Any, _mode: bool = True) -> Any:  # noqa: FBT001, FBT002  (as nn.Module.train)
    return module


# -- TorchScript ----------------------------------------------------------------------------------------------------


def on_mps(model: torch.nn.Module, name: str) -> torch.nn.Module:
    """Return the model, its TorchScript parts copied so that ``x.device`` in them is ``mps``.

    The copy has not run yet: its graph is compiled when it is first called.

    Args:
        model: may be TorchScript, or contain it.
        name: what the report calls the model.

    Raises:
        ModelLoadError: a part was frozen, or cannot be copied.
    """
    if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return _copy_script(model, name)
    for key, child in list(model.named_children()):
        moved = on_mps(child, name)
        if moved is not child:
            setattr(model, key, moved)
    function = vars(model).get("function")  # capture/child/run.py, AsModule
    return _copy_script(function, name) if isinstance(function, torch.jit.ScriptFunction) else model


def _copy_script(script: Any, name: str) -> torch.nn.Module:
    is_module = isinstance(script, torch.jit.ScriptModule)
    if is_module and not hasattr(script, "training"):
        raise ModelLoadError(
            "a frozen TorchScript module cannot be moved: its weights are constants of the CPU",
            context=f"model {name}",
            hint="audit it as it is before torch.jit.freeze, which is to be called after .to('mps')",
        )
    if is_module and "forward" not in modules.method_names(script):
        raise ModelLoadError(
            "this TorchScript module has no method forward that Python could call",
            context=f"model {name}",
            hint="script a module that calls it",
        )
    try:
        buffer = io.BytesIO()
        torch.jit.save(script, buffer)
        buffer.seek(0)
        copy: torch.nn.Module = torch.jit.load(buffer)
    except Exception as error:
        raise ModelLoadError(
            f"this TorchScript cannot be copied by torch.jit.save: {one_line(error)}",
            context=f"model {name}",
            hint="audit the torch.nn.Module that it was made from",
        ) from error
    if is_module:
        copy.train(script.training)
    _rewrite(copy)
    return copy


def _rewrite(module: Any) -> None:
    graph = module.forward.graph
    modules.inline_calls(graph)
    asked = graph.findAllNodes("prim::device")
    if not asked:
        return
    graph.setInsertPoint(next(iter(graph.nodes())))
    device = graph.insertConstant(MPS_DEVICE)
    for node in asked:
        node.output().replaceAllUsesWith(device)


# -- models that a tracer follows; the operator calls are those of the simulated Mac in each way ---------------------


class _LineTracer(torch.fx.Tracer):
    """torch.fx.symbolic_trace's tracer, which keeps the lines besides."""

    record_stack_traces = True


def follow(tracer: str, model: torch.nn.Module, args: Any, kwargs: Any) -> torch.nn.Module:
    """Return what a tracer, a key of request.TRACERS, makes of the model.

    Raises:
        CaptureError: the tracer cannot follow the model.
    """
    if tracer == DEFAULT_TRACER:
        return model
    message, hint = REFUSALS[tracer]
    try:
        if tracer == "fx":
            return torch.fx.GraphModule(model, _LineTracer().trace(model))
        return _export(model, args, kwargs)
    except Exception as error:  # user code runs in there
        raise CaptureError(f"{message}: {one_line(error)}", context=describe_raise(error), hint=hint) from error


#: What an error of a tracer means, and what to do.
REFUSALS: dict[str, list[str]] = TABLES["refusals"]


def _export(model: torch.nn.Module, args: Any, kwargs: Any) -> torch.nn.Module:
    """Export with fake CPU tensors, since the weights may be on meta; the result contains the model's own again."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        with mode:
            return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")

    own = dict(_tensors(model))
    state = {
        name: torch.nn.Parameter(fake(tensor), requires_grad=False)
        if isinstance(tensor, torch.nn.Parameter)
        else fake(tensor)
        for name, tensor in own.items()
    }
    args, kwargs = tree_map_only(torch.Tensor, fake, (args, kwargs))
    with modules.with_other_tensors(model, state):
        exported = as_module(torch.export.export(model, args, kwargs, strict=False))
    for name, _ in list(_tensors(exported)):
        if name in own:
            path, _, leaf = name.rpartition(".")
            holder = exported.get_submodule(path)
            for tensors in (modules.parameters_of(holder), modules.buffers_of(holder)):
                if leaf in tensors:
                    tensors[leaf] = own[name]
    # The device that the export ran on is baked into every factory call.
    read_on_mps(exported)
    return exported


def _tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)
