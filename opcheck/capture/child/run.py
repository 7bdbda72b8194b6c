"""Runs one model on the simulated Mac and makes the trace.  User code runs here, in the child process."""

import contextlib
import functools
import gc
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypedDict

import msgspec
import torch

from opcheck.capture.child import endings, training
from opcheck.capture.child.build import by_default, without_compiler
from opcheck.capture.child.calls import BY_ITSELF, FORWARD, FORWARD_CALL, ModelCall, OwnInputs, component_calls
from opcheck.capture.child.calls import calls as calls_of
from opcheck.capture.child.inputs.specs import Inputs, change, describe, inputs_for, sizes_of
from opcheck.capture.child.loading import fixed_programs
from opcheck.capture.child.loading.fixed_programs import find_fixed, refuse_fixed, set_training
from opcheck.capture.child.loading.load import Arguments, Loaded, hint_for, load
from opcheck.capture.child.move import Mover
from opcheck.capture.child.recipes.pipelines import PipelineModel
from opcheck.capture.child.recipes.transformers import cache_shape
from opcheck.capture.child.recording.dtype_origins import Births, births_in_checkpoint
from opcheck.capture.child.recording.graph import code, op_calls, to_graph
from opcheck.capture.child.recording.recorder import LoopsOnGuessError, Numbers, Recorder, TooManyCallsError, lifetimes
from opcheck.capture.repository import USE_KERNELS, has_replaced_layers, hub_kernels_in, remove_kernels
from opcheck.capture.request import DEFAULT_TRACER, CaptureRequest
from opcheck.common.errors import LibraryLoadError, ModelLoadError, OpcheckError
from opcheck.common.replacing import replace_attributes
from opcheck.common.text import error_text, error_type, one_line, type_and_text
from opcheck.common.versions import Target, Version
from opcheck.data.environment import set_watermarks, watermarks
from opcheck.data.packages import PACKAGES
from opcheck.data.registrations import load as load_lists
from opcheck.model.records import RAISED_ON_A_MAC, Birth, Problem, Trace, Watermarks
from opcheck.simulator import target_reads
from opcheck.simulator.dispatch.dispatcher import KEEP_ELEMENTS, Simulator
from opcheck.simulator.dispatch.mps_registrations import present_and_absent
from opcheck.simulator.errors import DataDependentError, NotSimulatedError, OutsideError
from opcheck.simulator.mac import simulated_mac
from opcheck.simulator.real_device import hide_device, out_of_reach
from opcheck.simulator.visible.public_names import names_of_the_target
from opcheck.simulator.visible.requirements import differ_from_installed, differing_libraries
from opcheck.simulator.visible.start_methods import spawned_processes
from opcheck.simulator.visible.surface import MacMemory, mps_backend
from opcheck.tracing.call_sites import CallSites
from opcheck.tracing.eager_compile import add_left_out, eager_compile
from opcheck.tracing.source_locations import display_path, locate_raise
from opcheck.tracing.torch_private.trees import tree_map_only
from opcheck.worker.platform import AlarmError, TimeLimitReached, out_of_memory, stop_time_limit
from opcheck.worker.protocol import Say

#: what is done with a model and its inputs
Program = Callable[[torch.nn.Module, Any, Any, CallSites], None]


#: seconds to turn the recorded calls into a trace; the most that a recorder keeps take 20.
_FINISH = 120.0

#: kind of problem -> its exceptions; the first that fits.
_KINDS: dict[str, tuple[type[BaseException], ...]] = {
    "timeout": (TimeLimitReached,),
    "process_died": (AlarmError,),
    "too_many_calls": (TooManyCallsError,),
    "data_dependent": (DataDependentError, LoopsOnGuessError),
    "not_simulated": (NotSimulatedError, OutsideError),
    "nothing_to_train": (training.NothingToTrainError,),
    "model_raised": (BaseException,),
}


#: Kinds of problems that end all further calls.
_ENDS_ALL = frozenset({"memory", "process_died", "timeout", "too_many_calls"})

#: Kinds of problems that a library may cause that sees another release than the installed release.
_RAISED = frozenset({"model_raised", "training_raised"})

#: Of the phases that are not the model's own: who raised.
_RAISERS = {"backward": "backward", "optimizer": "the optimizer"}


class Captured(NamedTuple):
    """A trace and, where the request has it, the graph as code."""

    trace: Trace
    code: str
    #: what saw the run, with what it read of its target; None: the model could not be built
    mac: Simulator | None
    #: the program raised after a library saw another release than the installed one
    doubtful: bool = False


class Prepared(NamedTuple):
    """A model with its inputs, on the CPU, as it is before a run: a run changes it."""

    model: torch.nn.Module
    inputs: Inputs
    step: training.TrainStep | None
    births: Births
    #: of checkpoints
    saved: list[Birth]
    eager: list[Problem]
    packages: dict[str, str]
    #: how it was followed: a key of TRACERS, or of FIXED
    tracer: str
    calls: tuple[ModelCall, ...]
    #: of a pipeline: its components, each by itself
    components: tuple[ModelCall, ...]
    #: what the program has put on ``mps`` while it was loaded
    on_mps: tuple[torch.Tensor, ...] = ()
    default_device: torch.device | None = None
    #: a problem for each kernel of the hub that the model requests, and was built without
    hub_kernels: tuple[Problem, ...] = ()


def run(request: CaptureRequest, say: Say) -> Captured:
    """Load the model, run it once on the simulated Mac, and turn what was recorded into a trace.

    Raises:
        ModelLoadError: the model cannot be imported or built.
        InputError: the inputs do not parse, or none could be derived.
    """
    target = request.target
    try:
        prepared = prepare(request, target, say)
    except ModelLoadError as error:
        trace = trace_of_constructor(request, target, error)
        if trace is None:
            raise
        return Captured(trace, "", None)
    return record(request, target, prepared, say)


def trace_of_constructor(request: CaptureRequest, target: Target, error: ModelLoadError) -> Trace | None:
    """Return the trace of a model whose import or constructor ends on a Mac, too; None: it ends only here."""
    cause = error.__cause__
    kind = endings.kind_of(cause) if cause is not None else ""
    if cause is None or kind not in RAISED_ON_A_MAC:
        return None
    problem = endings.problem_of(cause, kind, locate_raise(cause))
    return _make_trace(request, target, tracer=request.tracer, problems=(problem,), complete=False)


def _make_trace(request: CaptureRequest, target: Target, **facts: Any) -> Trace:
    return Trace(
        model=request.model,
        mode=request.mode,
        installed_torch=str(torch.__version__),
        target_torch=str(target.torch),
        target_macos=str(target.macos),
        **differences(target),
        **facts,
    )


@out_of_reach()
@spawned_processes()
def prepare(request: CaptureRequest, target: Target, say: Say, live: Loaded | None = None) -> Prepared:
    """Load the model and make its inputs, in a process that seems to be on that Mac.

    Args:
        request: names the model, if it is not there yet.
        target: the Mac.
        say: called with the stages.
        live: the model, where it is there already.

    Raises:
        ModelLoadError: the model cannot be imported or built.
        InputError: the inputs do not parse, or none could be derived.
    """
    trains = request.mode == "train"
    step = training.TrainStep(training.parse_optimizer(request.optimizer), request.autocast) if trains else None
    saved = [birth for file in request.checkpoints for birth in births_in_checkpoint(file)]
    say(f"loading {request.model}")
    # transformers checks once, at import, whether there is an MPS device.
    eager: list[Problem] = []
    births = Births()
    with mps_backend(target), leave_uncompiled(eager), births.while_loading(), names_of_the_target():
        loaded = live or _load_model(request, target)
        if step is not None and isinstance(loaded.model, torch.nn.Module):
            # Before labels are looked for among its arguments: a traced module has no signature.
            refuse_fixed(loaded.model, request.model)
        inputs = called_with(loaded, request)
    model = loaded.model if isinstance(loaded.model, torch.nn.Module) else AsModule(loaded.model)
    fixed_programs.check_inputs(model, inputs.args, inputs.kwargs, request.model)
    fixed_programs.read_on_mps(model, accelerated=loaded.accelerated)
    set_training(model, request.model, training=step is not None)
    model = fixed_programs.on_mps(model, request.model)
    inputs = change(model, inputs, request.changes)
    tracer = (find_fixed(model) if request.tracer == DEFAULT_TRACER else "") or request.tracer
    followed = tracer == DEFAULT_TRACER and step is None
    calls = calls_of(loaded, request.call) if followed else (FORWARD_CALL,)
    say(f"tracing with {request.tracer}")
    parts = tuple(component_calls(model)) if followed else ()
    model = fixed_programs.follow(request.tracer, model, inputs.args, inputs.kwargs)
    kernels = tuple(_hub_kernels(request, loaded.model))
    packages, on_mps, device = loaded.packages, loaded.on_mps, loaded.default_device
    return Prepared(model, inputs, step, births, saved, eager, packages, tracer, calls, parts, on_mps, device, kernels)


def _load_model(request: CaptureRequest, target: Target) -> Loaded:
    config = remove_kernels(request.config) if _of_transformers(request) else request.config
    try:
        return load(request.model, config, dtype=request.dtype, repository=request.repository)
    except ModelLoadError as error:
        cause = error.__cause__
        if cause is None or endings.kind_of(cause) in RAISED_ON_A_MAC or not differ_from_installed(target):
            raise
        raise LibraryLoadError(error.message, context=error.context, hint=error.hint) from cause


@out_of_reach()
@spawned_processes()
def record(request: CaptureRequest, target: Target, prepared: Prepared, say: Say) -> Captured:
    """Run what was prepared once on the simulated Mac, and turn what was recorded into a trace."""
    model, inputs, step, births, saved, eager, packages, tracer, *_ = prepared
    registrations = dict(load_lists().operators(str(target.torch)))
    memory, ratios = MacMemory(), set_watermarks(os.environ)
    recorder, mover = Recorder(births, _call.__code__), Mover(KEEP_ELEMENTS, births)
    mover.module(model)
    args, kwargs = mover.value(inputs.args, "args"), mover.value(inputs.kwargs, "kwargs")
    mover.others(prepared.on_mps)
    say("running on the simulated Mac")
    # A full collection walks every object of torch and of the model's library: a second for Llama 3 8B.
    gc.freeze()
    with (
        simulated_mac(target, registrations, recorder, on_cpu=births.note, memory=memory) as mac,
        births.while_running(),
        leave_uncompiled(eager),
        training.lost_gradients_noted() as lost,
        names_of_the_target(),
        by_default(prepared.default_device),
    ):
        recorder.raise_handled = functools.partial(endings.raise_handled, mac.context.ask)
        mac.context.find_refusal = lambda error: mac.context.ask(endings.find_refusal, type_and_text(error))
        try:
            if step:
                ended = [Ended(FORWARD_CALL, _call(step, model, args, kwargs, recorder))]
            else:
                ended = _call_all(request, prepared, (args, kwargs), recorder, mover)
        finally:
            stop_time_limit()
    say(f"recorded {len(recorder.calls)} calls", seconds=_FINISH)
    numbers = Numbers()
    graph = to_graph(recorder.calls, mover.names, recorder.place, numbers)
    moves = mover.calls(numbers)
    called = tuple(each.call.name for each in ended)
    broken, refusals = [], []
    for call, problem, *_ in ended:
        if problem is None:
            continue
        refusal = mac.context.ask(endings.refused_call, problem, recorder.sites.phase)
        if refusal:
            refusals.append(refusal)
        broken.append(_name_call(problem, "refused" if refusal else "", call, ended, model))
    noted = (*recorder.problems(), *training.lost_gradient_problems(lost, recorder), *eager)
    problems = (*noted, *_find_quantized(request), *prepared.hub_kernels, *broken)
    trace = _make_trace(
        request,
        target,
        calls=(*moves, *op_calls(graph), *refusals),
        lifetimes=lifetimes(recorder.calls, recorder.tensors.freed, mover.placed, numbers, len(moves)),
        watermarks=_with_fraction(ratios, memory.fraction),
        births=(*mover.births(numbers), *recorder.tensors.births(numbers), *saved),
        tracer=tracer,
        optimizer=str(step.optimizer) if step else "",
        autocast=request.autocast,
        loss=step.loss if step else "",
        inputs=(*inputs.specs, *_inputs_of_components(ended)),
        sizes=sizes_of(inputs, model),
        cache=cache_shape(model),
        inputs_note=_inputs_note(inputs.note, ended),
        called=called if called != (FORWARD,) else (),
        source=request.repository.source() if request.repository else "",
        parameters=mover.elements,
        parameter_bytes=mover.bytes,
        problems=problems,
        uncalled=() if broken else recorder.list_uncalled(model),
        complete=not broken,
        packages=packages,
    )
    raised = any(problem and problem.kind in _RAISED for _, problem, *_ in ended)
    doubtful = raised and bool(differ_from_installed(target))
    return Captured(trace, code(graph) if request.save_graph else "", mac, doubtful)


@contextlib.contextmanager
def leave_uncompiled(problems: list[Problem]) -> Iterator[None]:
    """Make ``torch.compile`` compile nothing inside the block, so that each operator call is seen.

    Args:
        problems: gets one entry where the program uses it.
    """
    compile_nothing = eager_compile(lambda name: add_left_out(problems, name))
    with replace_attributes([(torch, "compile", compile_nothing), (torch.jit, "load", _refuse_script)]):
        yield


def _refuse_script(file: object = "", *_args: Any, **_options: Any) -> Any:
    raise ModelLoadError(
        "a saved ScriptModule contains no Python code to trace: torch.jit.load is not supported",
        context=f"torch.jit.load({file!r})",
        hint="name the Python class that it was made from, or save it by torch.export.save(), as file.pt2",
    )


class AsModule(torch.nn.Module):
    """A plain callable as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        return self.function(*args, **kwargs)


def seed() -> None:
    """Seed the generators: what a program draws (dropped layers, masks of spectrograms) is the same in each run."""
    random.seed(0)
    torch.manual_seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


def called_with(loaded: Loaded, request: CaptureRequest) -> Inputs:
    """Return what the model is called with: labels too, to train it.

    Raises:
        InputError: the inputs do not parse, or none could be derived.
    """
    train = request.mode == "train"
    inputs = inputs_for(loaded, request.inputs, dtype=request.dtype, files=request.input_files, train=train)
    return training.with_labels(loaded, inputs) if train else inputs


def _find_quantized(request: CaptureRequest) -> Iterator[Problem]:
    """Yield a problem for each quantization method of the weights: the layers were built dense."""
    for method in request.repository.quantized_by() if request.repository else ():
        message = f"the weights are quantized by {method}, and the layers were built dense"
        yield Problem(kind="quantized", message=message, answered=method)


def _of_transformers(request: CaptureRequest) -> bool:
    """Return whether settings of the request go to transformers, and not to a function of the user's."""
    return request.repository is not None or request.model.startswith("transformers:")


def _hub_kernels(request: CaptureRequest, model: object) -> Iterator[Problem]:
    """Yield a problem for each kernel of the hub that a Mac would use: the model was built without it."""
    chosen = request.config if _of_transformers(request) else {}
    # The attention of the command line takes the place of the configuration's.
    repository = None if "attn_implementation" in chosen else request.repository
    stated = repository.hub_kernels() if repository else ()
    for name in dict.fromkeys((*hub_kernels_in(chosen), *stated)):
        if name == USE_KERNELS and not _replaces_layers(request, model):
            continue
        message = f"the model requires {name}, a kernel of the hub, and was built without it"
        yield Problem(kind="hub_kernel", message=message, answered=name)


def _replaces_layers(request: CaptureRequest, model: object) -> bool:
    """Return whether ``use_kernels`` replaces layers of the model on a Mac: none in training."""
    layers = PACKAGES.load().kernels[USE_KERNELS].layers
    modules = model.modules() if isinstance(model, torch.nn.Module) else ()
    return request.mode != "train" and has_replaced_layers(layers, modules)


class Ended(NamedTuple):
    """A call that was run, and what ended it; None: it came to its end."""

    call: ModelCall
    problem: Problem | None
    #: of a component by itself
    inputs: OwnInputs = OwnInputs((), {})

    @property
    def name(self) -> str:
        """The name of the call; of a component by itself the component's."""
        return self.call.name.removesuffix(BY_ITSELF)

    @property
    def is_alone(self) -> bool:
        """Whether it is a component that was judged by itself to its end."""
        return bool(self.call.component) and self.problem is None


def _call_all(
    request: CaptureRequest, prepared: Prepared, arguments: Arguments, recorder: Recorder, mover: Mover
) -> list[Ended]:
    """Run the calls in turn, each with the result of the call before; return those that were run.

    A call that takes all time or memory is the last.  Where one breaks off, what would take its result is left out, and
    the components of a pipeline that it did not come to are called by themselves.
    """
    model, ended = prepared.model, list[Ended]()
    returned: list[Any] = [None]

    def run(call: ModelCall) -> Problem | None:
        own = OwnInputs((), {})

        def program(model: torch.nn.Module, args: Any, kwargs: Any, _sites: CallSites) -> None:
            nonlocal own
            supplied = args, kwargs
            if call.component:
                own = call.inputs()
                supplied = mover.value(own[:2], call.name)
            with torch.set_grad_enabled(request.grad), training.autocast(request.autocast):
                before, returned[0] = returned[0], None
                returned[0] = call.run(model, supplied, before)

        problem = _call(program, model, *arguments, recorder)
        ended.append(Ended(call, problem, own))
        return problem

    problem = None
    for call in prepared.calls:
        if not (problem and call.follows):
            problem = run(call)
        if problem and problem.kind in _ENDS_ALL:
            return ended
    broken = next((each.problem for each in ended if each.problem), None)
    if broken is None:
        return ended
    for call in _find_unused(prepared, broken, recorder):
        problem = run(call)
        if problem and problem.kind in _ENDS_ALL:
            break
    return ended


def _find_unused(prepared: Prepared, broken: Problem, recorder: Recorder) -> Iterator[ModelCall]:
    """Yield the component where a pipeline's call broke off, and those that nothing has used so far."""
    for call in prepared.components:
        is_broken = call.component == broken.module.partition(".")[0]
        if is_broken or id(call.proof) not in recorder.sites.modules.called:
            yield call


def _inputs_of_components(ended: Sequence[Ended]) -> Iterator[str]:
    for each in ended:
        if specs := [*describe(*each.inputs[:2])]:
            yield f"{each.name}({', '.join(specs)})"


def _inputs_note(note: str, ended: Sequence[Ended]) -> str:
    """Say where inputs come from, those of components that were called by themselves too."""
    guessed = any(each.is_alone and each.inputs.guessed for each in ended)
    own = "inputs guessed for components by themselves" if guessed else ""
    return "; ".join(filter(None, (note, own)))


def _name_call(problem: Problem, kind: str, call: ModelCall, ended: Sequence[Ended], model: torch.nn.Module) -> Problem:
    """Name the call that a problem ended, where there are others, which are judged; an empty kind leaves its own."""
    message = problem.message
    if call.component and problem.kind == "model_raised":
        kind = kind or "component_raised"
    elif isinstance(model, PipelineModel) and not call.component:
        return _of_pipeline(problem, kind, ended, model)
    if len(ended) > 1:
        message = f"{call.name}: {message}"
    return msgspec.structs.replace(problem, kind=kind or problem.kind, message=message)


def _judged_alone(ended: Sequence[Ended]) -> Iterator[str]:
    """Yield which components were judged by themselves, and what with."""
    alone = [each for each in ended if each.is_alone]
    for guessed, arguments in ((False, "with the pipeline's latents"), (True, "with guessed inputs")):
        names = [each.name for each in alone if each.inputs.guessed == guessed]
        if names:
            yield f"; judged by themselves, {arguments}: {', '.join(names)}"


def _of_pipeline(problem: Problem, kind: str, ended: Sequence[Ended], model: PipelineModel) -> Problem:
    """Name the stage where a pipeline's call broke off, and what was judged in its place."""
    judged = "".join(_judged_alone(ended))
    own = problem.kind == "model_raised"
    if own and model.failures:
        name, error = next(iter(model.failures.items()))
        why = error.message if isinstance(error, OpcheckError) else problem.message
        message = f"{name} cannot be built, and the pipeline was not called: {why}{judged}"
        return Problem(kind="not_built", message=message, answered=hint_for(error))
    stage = model.stage(problem.module) or "its own code"
    return msgspec.structs.replace(
        problem,
        kind=kind or ("pipeline_raised" if own else problem.kind),
        message=f"the pipeline breaks off in {stage}: {problem.message}{judged}",
    )


def _call(program: Program, model: torch.nn.Module, args: Any, kwargs: Any, recorder: Recorder) -> Problem | None:
    seed()
    recorder.sites.modules.raised_in = ""
    try:
        with recorder.sites.follow_modules(model), without_compiler():
            program(model, args, kwargs, recorder.sites)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - user code: anything, SystemExit included
        return _problem(error, recorder)
    return None


def _problem(error: BaseException, recorder: Recorder) -> Problem:
    kind = next(name for name, kinds in _KINDS.items() if isinstance(error, kinds))
    if out_of_memory(error):
        kind = "memory"
    if isinstance(error, NotImplementedError) and "HigherOrderOperator" in error_text(error):
        kind = "not_simulated"  # torch/_ops.py: each mode needs a rule of its own
    location, op = locate_raise(error), endings.refused_operator(error)
    module = recorder.sites.modules.raised_in
    ends = endings.kind_of(error) if kind == "model_raised" else ""
    # A guess, and not the condition, may be what led the program there.
    if ends and not (ends == "mps_branch" and recorder.guesses):
        return msgspec.structs.replace(endings.problem_of(error, ends, location), module=module, op=op)
    text = one_line(error)
    who = _RAISERS.get(recorder.sites.phase, "the model")
    if kind == "model_raised":
        kind = "training_raised" if recorder.sites.phase in _RAISERS else kind
        text = error.message if isinstance(error, OpcheckError) else f"{who} raised {error_type(error)}: {text}"
        if recorder.guesses:
            text += " (values were guessed before: the guess, not the program, may be what is wrong)"
    elif kind == "memory":
        text = f"{who} wanted more memory of this machine than it may take: {text or 'MemoryError'}"
    return Problem(kind=kind, message=text, location=location, module=module, op=op)


class Differences(TypedDict):
    """How a run differed from a run with the target's torch: fields of a Trace."""

    differences: tuple[str, ...]
    differing_libraries: tuple[str, ...]


def differences(target: Target) -> Differences:
    """Return how the installed torch differs from the target's."""
    installed = Version.parse(torch.__version__)
    libraries = differing_libraries(target)
    notes = []
    if installed != target.torch:
        notes.append(
            f"torch's own Python ran as torch {torch.__version__}: "
            f"a branch of it on torch.__version__ did not see {target.torch}"
        )
        _, absent = present_and_absent(load_lists().operators(str(target.torch)))
        if absent:
            notes.append(
                f"{len(absent)} operators of torch {target.torch} that MPS has are not installed, "
                f"and no call of them was seen: {', '.join(absent[:5])}" + (", ..." if len(absent) > 5 else "")
            )
    notes += [*libraries.values(), *target_reads.READS.notes.values()]
    return Differences(differences=tuple(notes), differing_libraries=tuple(libraries))


def _with_fraction(ratios: Watermarks | None, fraction: float | None) -> Watermarks | None:
    """Return the ratios after ``torch.mps.set_per_process_memory_fraction``, which sets the high one alone."""
    if fraction is None:
        return ratios
    return (ratios or watermarks({}))._replace(high=fraction)


# -- the same model without the simulation: on the CPU, or on meta where it is large ----------------------------------


#: Most parameters of a model that gets real weights.
_MOST_REAL = 150_000_000


@hide_device()
def plain(request: CaptureRequest, *, build_only: bool = False) -> str:
    """Return ``runs``, or the error that building or running the model raises, and its line.

    Args:
        request: the model, its configuration, inputs and mode; the target plays no part.
        build_only: do not run it.
    """
    try:
        if build_only:
            load(request.model, request.config, real=True, repository=request.repository)
        else:
            _run_plainly(request)
    except Exception as error:  # noqa: BLE001 - whatever a model raises
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        frame = traceback.extract_tb(cause.__traceback__)[-1]
        place = f"{display_path(frame.filename)}:{frame.lineno}"
        return f"{error_type(cause)}: {one_line(cause, 200)} [{place}]"
    return "runs"


def _run_plainly(request: CaptureRequest) -> None:
    loaded = load(request.model, request.config, repository=request.repository)
    trains = request.mode == "train"
    model, args, kwargs = _with_weights(request, loaded, called_with(loaded, request))
    if isinstance(model, torch.nn.Module):
        set_training(model, request.model, training=trains)
    with torch.set_grad_enabled(trains):
        output = model(*args, **kwargs)
        if trains:
            training.loss_of(output).value.backward()


def _with_weights(request: CaptureRequest, loaded: Loaded, inputs: Inputs) -> tuple[Any, Any, Any]:
    model = loaded.model
    if not isinstance(model, torch.nn.Module):
        return model, inputs.args, inputs.kwargs
    if sum(weight.numel() for weight in model.parameters()) <= _MOST_REAL:
        built = load(request.model, request.config, real=True, repository=request.repository)
        return built.model, inputs.args, inputs.kwargs
    args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), (inputs.args, inputs.kwargs))
    return model.to("meta"), args, kwargs
