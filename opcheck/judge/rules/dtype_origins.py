"""Origins of dtypes that MPS refuses or narrows: one finding for each origin, however many of its calls fail."""

import ast
import textwrap
from collections.abc import Collection, Iterator

from opcheck.common.grouping import group_values
from opcheck.common.names import DTYPES
from opcheck.common.python_source import parse
from opcheck.common.text import and_more, plural
from opcheck.data.messages import fill_text
from opcheck.judge import dtype_flow, target_change
from opcheck.judge.judge import judge
from opcheck.judge.remedies import WayOut, way_out
from opcheck.judge.rules.rule import AuditCheck, Audited, audit_rule, finding, sentences
from opcheck.judge.texts import INSTEAD, ORIGINS
from opcheck.model.records import BY_NAME, Finding, GroupLocation, OpCall, TensorSpec, Verdict

_NO_HELP = "PYTORCH_ENABLE_MPS_FALLBACK=1 does not help: it is for operators without a kernel"


def _report_origins(*traits: str) -> AuditCheck:
    """Return a check that reports each origin of these traits that reaches a call which fails or narrows."""

    def check(audited: Audited) -> Iterator[Finding]:
        return (_finding(audited, origin) for origin in audited.origins if origin.trait in traits)

    return check


#: A float64 tensor that meets MPS begins here.
find_float64_origins = audit_rule("OC140", "error")(_report_origins("float64"))
#: A complex tensor that a call refuses begins here.
find_complex_origins = audit_rule("OC141", "error")(_report_origins("complex"))
#: A tensor of a dtype that few kernels take begins here.
find_rare_origins = audit_rule("OC142", "error")(_report_origins("complex32", "unsigned", "float8"))


def _finding(audited: Audited, origin: dtype_flow.Origin) -> Finding:
    first = audited.trace.calls[origin.failing[0]]
    verdict = audited.verdicts[origin.failing[0]]
    way = _way_out(audited, origin, first)
    instead = INSTEAD.get(origin.dtype)
    names = f" ({and_more(origin.names, 3)})" if origin.names else ""
    hint = sentences(
        f"make it {instead} where it begins" if instead else "",
        way.hint,
        _upgrade(audited, origin),
        _NO_HELP if origin.effect == "raises" and origin.certain else "",
    )
    return finding(
        severity="error" if origin.effect == "raises" and origin.certain else "warning",
        message=f"{origin.dtype} begins here: {describe(origin)}{names}; {_what_fails(origin, first)}",
        hint=hint,
        op=first.op,
        prints=verdict.prints or _would_print(audited, verdict, origin),
        locations=_places(origin, first),
        count=max(1, origin.calls),
        remedy=rewritten(origin) or way.line,
    )


def _way_out(audited: Audited, origin: dtype_flow.Origin, first: OpCall) -> WayOut:
    """Return the tested remedy for how the dtype began, or else for the call that fails."""
    base = first.op.removeprefix("aten::").partition(".")[0]
    api = origin.api.rpartition(".")[2] if "::" not in origin.api else origin.api.partition(".")[0]
    made = api if "::" in api else f"aten::{api}"
    kinds = [f"{origin.dtype}/{origin.how}"]
    if origin.trait == "complex":
        kinds += [f"complex/{base.removesuffix('_')}", made, f"complex/{origin.how}"]
    kinds.append(f"{origin.trait}/{origin.how}")
    return way_out(kinds, audited.target, first.location.text if first.location else "")


def _would_print(audited: Audited, verdict: Verdict, origin: dtype_flow.Origin) -> str:
    """Return the error text of a statement that may apply."""
    statements = audited.lists.statements.by_id
    possible = dtype_flow.speaking(verdict.limitations, BY_NAME[origin.trait], statements)
    return next((fill_text(statement.error.text) for statement in possible if statement.error), "")


def _places(origin: dtype_flow.Origin, first: OpCall) -> tuple[GroupLocation, ...]:
    """Return the origin's line, then the line of the first call that fails, if it is another."""
    begins = GroupLocation.at(origin.location)
    fails = GroupLocation.at(first.location, phase=first.phase)
    if first.phase != "move":
        fails = GroupLocation.at(first.location, module=first.module, count=len(origin.failing), phase=first.phase)
    if origin.location is None:
        return (fails,)
    return (begins,) if fails.location is None or str(fails.location) == str(begins.location) else (begins, fails)


def _what_fails(origin: dtype_flow.Origin, first: OpCall) -> str:
    verb = _VERBS[origin.effect][origin.certain]
    if first.phase == "move":
        return f"its move to mps {verb}"
    at = "in the backward of" if first.phase == "backward" else "at"
    where = f" {at} {first.location}" if first.location else ""
    passed = origin.calls - len(origin.failing)
    taken = f"; {plural(passed, 'call')} that it passes can take it" if passed > 0 else ""
    return f"the first call that {verb} is {first.op}{where}{taken}"


_VERBS = {"raises": ("may fail", "fails"), "narrows": ("may narrow it", "narrows it")}


def _upgrade(audited: Audited, origin: dtype_flow.Origin) -> str:
    trait = BY_NAME[origin.trait]
    statements = audited.lists.statements.by_id

    def accepts(verdict: Verdict) -> bool:
        # An advised target must take the dtype for certain: a statement that may refuse it excludes the target.
        return target_change.runs(verdict) and not dtype_flow.effect(verdict, trait, statements, certain=False)

    calls = [audited.trace.calls[index] for index in origin.failing]
    change = target_change.smallest_change(calls, audited.target, audited.lists, accepts)
    return f"{change} takes it" if change else ""


# -- an origin in words, and its line with a cast ----


def describe(origin: dtype_flow.Origin) -> str:
    """Return the origin in words."""
    return ORIGINS[origin.how]["text"].format(api=_short(origin.api), dtype=origin.dtype)


def rewritten(origin: dtype_flow.Origin) -> str:
    """Return the origin's own line with a cast added; empty if the line has more than the call."""
    pattern = ORIGINS[origin.how].get("rewrite", "{x}.to({instead})")
    instead = INSTEAD.get(origin.dtype)
    if not pattern or instead is None or origin.location is None:
        return ""
    pair = _call_in(origin.location.text, _names(origin))
    if pair is None:
        return ""
    line, call = pair
    if origin.how in {"cast", "dtype_given"}:
        return _with_dtype(line, call, origin.dtype, instead)
    text = ast.get_source_segment(line, call) or ""
    return line.replace(text, pattern.format(x=text, instead=f"torch.{instead}"), 1)


#: Operators that a program calls by another name.
_CALLED = {"_to_copy": "a move or a cast", "_fft_r2c": "a transform", "_fft_c2c": "a transform"}


def _short(api: str) -> str:
    """Return the part of ``aten::arange.start_step`` that the line has: ``arange``."""
    if "::" not in api:
        return api
    name = api.removeprefix("aten::").partition(".")[0]
    return _CALLED.get(name, name.lstrip("_"))


def _names(origin: dtype_flow.Origin) -> frozenset[str]:
    """Return the spellings that the line can have for the call that makes the dtype."""
    return _CASTS if origin.how == "cast" else frozenset({_short(origin.api).rpartition(".")[2]})


_CASTS = frozenset({"to", "type", "double", "cdouble"})


def _call_in(text: str, names: Collection[str]) -> tuple[str, ast.Call] | None:
    """Return the only call of these names on a line, and the part of the line that parses by itself."""
    line = textwrap.dedent(text).strip()
    for candidate in (line, f"{line} pass", line.rstrip(",")):
        try:
            tree = parse(candidate)
        except SyntaxError:
            continue
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name_called(node.func) in names]
        return (candidate.removesuffix(" pass"), calls[0]) if len(calls) == 1 else None
    return None


def _name_called(func: ast.expr) -> str:
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


def _with_dtype(line: str, call: ast.Call, dtype: str, instead: str) -> str:
    """Return the line with its dtype replaced; ``.double()`` becomes ``.float()``."""
    if _name_called(call.func) == "double" and not call.args and not call.keywords:
        return line.replace(".double()", ".float()", 1)
    names = {dtype, "double" if dtype == "float64" else dtype}
    for node in ast.walk(call):
        text = ast.get_source_segment(line, node) if isinstance(node, ast.expr) else None
        if isinstance(node, ast.Attribute) and node.attr in names and text:
            return line.replace(text, f"{text.rpartition('.')[0]}.{instead}", 1)
    return ""


# -- OC143: a checkpoint file has tensors that cannot be loaded onto MPS ----


@audit_rule("OC143", "warning")
def find_checkpoint_dtypes(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each file and dtype that cannot be loaded onto the target."""
    read = (birth for birth in audited.trace.births if birth.how == "file" and not birth.tensor)
    for (file, dtype), births in group_values(((birth.api, birth.dtype), birth) for birth in read).items():
        fails = "loading the file onto mps fails"
        verdict = judge(_load(dtype), audited.target, audited.lists)
        if verdict.status != "unsupported" and DTYPES[dtype].kind == "float8":
            fails = "a cast of it on mps raises"
            verdict = judge(_cast_on_mps(dtype), audited.target, audited.lists)
        if verdict.status != "unsupported":
            continue
        names = and_more([birth.name for birth in births], 3)
        instead = INSTEAD.get(dtype, "a dtype that MPS has")
        yield finding(
            message=f"{plural(len(births), 'tensor')} in {file} "
            f"{'is' if len(births) == 1 else 'are'} {dtype} ({names}): {fails}",
            hint=f"load it to the CPU and cast to {instead} before the move",
            prints=verdict.prints,
            count=len(births),
            remedy=f'state = torch.load("{file}", map_location="cpu")',
        )


def _cast_on_mps(dtype: str) -> OpCall:
    """Return the call of ``tensor.to(torch.float16)`` on MPS: a program casts float8 before it computes."""
    stored = TensorSpec(tensor=1, storage=1, dtype=dtype, shape=(1,), argument="self")
    made = TensorSpec(tensor=2, storage=2, dtype="float16", shape=(1,))
    return OpCall(op="aten::_to_copy", inputs=(stored,), outputs=(made,))


def _load(dtype: str) -> OpCall:
    """Return the call that torch.load(..., map_location="mps") makes for each storage (torch/serialization.py)."""
    made = TensorSpec(tensor=1, storage=1, dtype=dtype, shape=(1,))
    return OpCall(op="aten::_to_copy", outputs=(made,), inner=("aten::empty_strided",))
