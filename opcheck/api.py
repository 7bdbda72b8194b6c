"""The Python API: ``opcheck.audit``.  Its import takes no torch."""

import difflib
import inspect
from collections.abc import Callable
from typing import Annotated, Any, ParamSpec, Protocol

import msgspec
from msgspec.structs import replace

from opcheck.capture.request import CaptureOption, CaptureOptions, CaptureRequest, ModelSource, find_source, request_of
from opcheck.common.documents import brief
from opcheck.common.errors import UnknownTargetError, UsageError, named_by_keyword
from opcheck.data.built_lists import select
from opcheck.data.macs import MAC, MEMORY, MacOptions
from opcheck.data.registrations import load
from opcheck.data.targets import FALLBACK, MACOS, NEWEST_KNOWN, TORCH, target
from opcheck.judge.timing.estimates import TIME, chips_of, with_time
from opcheck.model.options import options_of
from opcheck.model.records import Report
from opcheck.orchestrator import audit as audit_request
from opcheck.orchestrator import report_of_request

_Options = ParamSpec("_Options")


class AuditOptions(CaptureOptions, frozen=True, kw_only=True):
    """The keyword arguments of ``opcheck.audit``: the options of the capture and of the target."""

    torch: Annotated[str | None, TORCH] = None
    macos: Annotated[str | None, MACOS] = None
    fallback: Annotated[bool, FALLBACK] = False
    newest_known: Annotated[bool, NEWEST_KNOWN] = False
    memory: Annotated[int | None, MEMORY] = None
    mac: Annotated[str, MAC] = ""
    time: Annotated[bool, TIME] = False


class _AuditFunction(Protocol[_Options]):
    """The signature of ``opcheck.audit`` for type checkers and ``help``."""

    def __call__(
        self, model: str | Callable[..., Any], inputs: Any = None, *args: _Options.args, **options: _Options.kwargs
    ) -> Report: ...


def with_keywords(
    record: Callable[_Options, msgspec.Struct],
) -> Callable[[Callable[..., Report]], _AuditFunction[_Options]]:
    """Give a function the options of a record as keyword arguments, so that they are declared only once."""

    def decorate(function: Callable[..., Report]) -> _AuditFunction[_Options]:
        assert isinstance(record, type)
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.name != "options"]
        options = [source for source in options_of(record) if source.field not in signature.parameters]
        keywords = [
            inspect.Parameter(
                source.field,
                inspect.Parameter.KEYWORD_ONLY,
                default=source.default,
                annotation=source.type if source.default is not None else source.type | None,
            )
            for source in options
        ]
        texts = "".join(f"\n            {each.field}: {each.option.help}" for each in options)
        function.__doc__ = function.__doc__ and function.__doc__.replace("AuditOptions:", f"AuditOptions:{texts}")
        vars(function)["__signature__"] = signature.replace(parameters=[*own, *keywords])
        return function

    return decorate


@with_keywords(AuditOptions)
def audit(model: str | Callable[..., Any], inputs: Any = None, **options: Any) -> Report:
    """Predict what each operator call of a model does on a Mac's GPU; nothing is observed on a Mac.

    A model's name is loaded in a process of its own, as ``opcheck audit`` does.  A module or a function is run as it
    is here, in eval mode for inference and in train mode for a training step, in a fork: neither it nor its tensors
    change, and no random number is drawn here.  What it decided when it was built (whether there is an MPS device) is
    as this machine answered.

    Args:
        model: a name as on the command line (``transformers:BertModel``, ``file.py:attribute``), or a module or a
            function of tensors, whose tensors are on the CPU or on the meta device.
        inputs: of a name, texts such as ``1x3x224x224:float32``; else a tuple of arguments, a mapping of keyword
            arguments, or the only argument.  None: those that the model comes with, or derived ones.
        options: how the model is run, and the Mac that it is run on, as AuditOptions:

    Returns:
        The report: ``print(report)`` shows the terminal's answer, ``report.findings`` a table, and
        ``report.save("report.html")`` writes a page.

    Raises:
        TypeError: a keyword that is none of those.
        UsageError: a value that its keyword does not take, such as a torch that is no version.
        UnknownTargetError: there is no list for that release, or it does not run on that macOS; it is newer than the
            lists, and newest_known is not set.
        ModelLoadError, InputError: the model or its inputs cannot be loaded, or are on a GPU of this machine.
        CaptureError: the process of the run ended, or took too long.

    Example:
        >>> model = torch.nn.Linear(8, 8)  # doctest: +SKIP
        >>> report = opcheck.audit(model, torch.rand(2, 8), torch="2.13", macos="15")  # doctest: +SKIP
        >>> report.headline  # doctest: +SKIP
        'runs natively'
    """
    with named_by_keyword({source.name: source.field for source in options_of(AuditOptions)}):
        return _audit(model, inputs, options)


def _audit(model: str | Callable[..., Any], inputs: Any, options: dict[str, Any]) -> Report:
    chosen = _check_options(options)
    select(chosen.torch)
    lists = load()
    mac = target(chosen.torch, chosen.macos, lists, fallback=chosen.fallback)
    if mac.beyond and not chosen.newest_known:
        raise UnknownTargetError(
            mac.beyond,
            context="opcheck.audit",
            hint="newest_known=True accepts that answer; its report notes it in target.beyond",
        )
    named = MacOptions(memory=chosen.memory, mac=chosen.mac)
    memory, chips = named.decisive_memory(), chips_of(named, time=chosen.time)
    if isinstance(model, str):
        request = _with_texts(request_of(find_source(model, chosen), mac, chosen), inputs)
        return with_time(audit_request(request, lists, mac=memory), chips, lists)
    request = request_of(ModelSource(_name(model)), mac, chosen)
    _check(request, model)
    from opcheck.capture.child.shared import capture_live

    trace = capture_live(request, model, inputs)
    return with_time(report_of_request(request, trace, mac, lists, mac=memory), chips, lists)


def _check_options(options: dict[str, Any]) -> AuditOptions:
    """Check keyword arguments and return them as options.

    Raises:
        TypeError: there is no such option.
        UsageError: a value that the option does not take.
    """
    fields = {source.field for source in options_of(AuditOptions)}
    if unknown := sorted(options.keys() - fields):
        near = difflib.get_close_matches(unknown[0], fields, 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        message = f"opcheck.audit has no keyword {unknown[0]!r}{meant}"
        raise TypeError(message)
    chosen = AuditOptions(**options)
    for name in ("torch", "macos"):
        if not isinstance(getattr(chosen, name), str | None):
            raise UsageError(
                f"{name} is a text, not {brief(getattr(chosen, name))}",
                context="opcheck.audit",
                hint=f'write {name}="{getattr(chosen, name)}"',
            )
    sources = options_of(AuditOptions)
    return replace(
        chosen, **{each.field: each.checked(getattr(chosen, each.field), "opcheck.audit") for each in sources}
    )


def _check(request: CaptureRequest, model: object) -> None:
    if not callable(model):
        raise UsageError(
            f"{type(model).__name__} is no kind of model",
            context=f"opcheck.audit, {request.model}",
            hint="give a name, a module, or a function of tensors",
        )
    for source in options_of(CaptureOptions):
        option = source.option
        goes_with_names = isinstance(option, CaptureOption) and option.scope != "run"
        if goes_with_names and getattr(request, source.field) != source.default:
            raise UsageError(
                f"{source.field} goes with a model's name alone",
                context=f"opcheck.audit, {request.model}",
                hint="give a name, or leave it out",
            )


def _with_texts(request: CaptureRequest, inputs: Any) -> CaptureRequest:
    texts = (inputs,) if isinstance(inputs, str) else tuple(inputs or ())
    if not all(isinstance(text, str) for text in texts):
        raise UsageError(
            "the inputs of a model that is named are texts",
            context=f"opcheck.audit, {request.model}",
            hint="such as 1x3x224x224:float32; or give the module itself with its tensors",
        )
    return replace(request, inputs=texts)


def _name(model: object) -> str:
    kind = model if hasattr(model, "__qualname__") else type(model)
    return f"{kind.__module__}.{getattr(kind, '__qualname__', '')}"
