"""Each remedy equals what it stands for, and is native where it is offered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from opcheck.capture.child.recording.graph import op_calls, to_graph
from opcheck.capture.child.recording.recorder import Numbers
from opcheck.data.registrations import load
from opcheck.judge.judge import judge_all
from opcheck.judge.remedies import BY_ID, REMEDIES, TESTED, Remedy, fill_pattern, for_kind
from tests.judge.remedies.examples import EXAMPLES, PATTERNS
from tests.simulator.mac import recorded, target

SIZES = st.integers(1, 5)
EACH = pytest.mark.parametrize("name", EXAMPLES)


def floats(value: Any) -> list[Tensor]:
    values = value if isinstance(value, tuple) else (value,)
    return [item.detach().to(torch.complex128 if item.is_complex() else torch.float64) for item in values]


def relative(result: Any, exact: Any) -> float:
    """The relative error of norms; a pair of floats is their sum."""
    worst = 0.0
    for item, other in zip(floats(result), floats(exact), strict=True):
        whole = item.sum(0) if item.dim() == other.dim() + 1 else item
        assert whole.shape == other.shape
        size = float(torch.linalg.vector_norm(other))
        worst = max(worst, float(torch.linalg.vector_norm(whole - other)) / max(size, 1e-3))
    return worst


def test_every_remedy_is_tried() -> None:
    assert BY_ID.keys() == EXAMPLES.keys() | PATTERNS.keys()
    assert len(BY_ID) == len(REMEDIES)


@EACH
@settings(max_examples=8, deadline=None, derandomize=True)
@given(a=SIZES, b=SIZES, c=SIZES)
def test_a_remedy_equals_what_it_stands_for(name: str, a: int, b: int, c: int) -> None:
    torch.manual_seed(a * 100 + b * 10 + c)
    example = EXAMPLES[name]
    inputs = example.made(a, b, c)
    assert relative(example.after(*inputs), example.before(*inputs)) <= BY_ID[name].tolerance


@pytest.mark.parametrize("name", [name for name in EXAMPLES if BY_ID[name].gradient is not None])
@settings(max_examples=5, deadline=None, derandomize=True)
@given(a=SIZES, b=SIZES, c=SIZES)
def test_so_do_its_gradients(name: str, a: int, b: int, c: int) -> None:
    torch.manual_seed(a * 100 + b * 10 + c)
    example, remedy = EXAMPLES[name], BY_ID[name]
    inputs = example.made(a, b, c)
    result, exact = (gradients(run, inputs) for run in (example.after, example.before))
    assert remedy.gradient is not None
    for item, other in zip(result, exact, strict=True):
        assert relative(item, other) <= remedy.gradient


def gradients(run: Callable[..., Any], inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Of a weighted sum of the results; a window has none."""
    leaves = [item.clone().requires_grad_() for item in inputs]
    made = floatings(run(*leaves))
    total = sum((item * weights(item)).sum() for item in made)
    assert isinstance(total, Tensor)
    result: tuple[Any, ...] = torch.autograd.grad(total, leaves, allow_unused=True)
    return [item for item in result if isinstance(item, Tensor)]


def floatings(value: Any) -> list[Tensor]:
    return list(value) if isinstance(value, tuple) else [value]


def weights(like: Tensor) -> Tensor:
    return torch.linspace(0.5, 1.5, like.numel(), dtype=torch.float64).view(like.shape).to(like.dtype)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize(("a", "b"), [(1, 1), (3, 5)])
def test_a_pattern_equals_what_it_stands_for(name: str, a: int, b: int) -> None:
    pattern, remedy = PATTERNS[name], BY_ID[name]
    results = []
    for code in (remedy.before, remedy.after):
        torch.manual_seed(0)
        given_names = pattern.names(a, b)
        results.append(run_line(code, given_names)[pattern.made])
    assert relative(results[1], results[0]) <= remedy.tolerance
    if not remedy.tolerance:
        assert torch.equal(results[0].to(results[1].dtype), results[1])


def run_line(code: str, names: dict[str, Any]) -> dict[str, Any]:
    """What the names are after the code, with each place filled by its own name."""
    before = torch.get_default_dtype()
    scope = {**names, "torch": torch}
    try:
        exec(fill_pattern(code, {}), scope)  # noqa: S102  (it is what is tested)
    finally:
        torch.set_default_dtype(before)
    return scope


def calls_of(run: Callable[..., Any], inputs: tuple[Tensor, ...], release: str, macos: str) -> Any:
    recorder = recorded(run, *inputs, release=release, macos=macos)
    return op_calls(to_graph(recorder.calls, {}, recorder.place, Numbers()))


def not_native(remedy: Remedy, release: str, macos: str) -> Iterator[str]:
    """What is not native of a remedy on a target."""
    torch.manual_seed(0)
    if remedy.id in EXAMPLES:
        example = EXAMPLES[remedy.id]
        run, inputs = example.after, example.made(2, 3, 4)
    else:
        pattern = PATTERNS[remedy.id]

        def run(x: Tensor) -> Tensor:
            names = pattern.names(3, 4)
            names = {**names, "x": x.long(), "device": x.device} if "x" in names else names
            made = run_line(remedy.after, names)[pattern.made].to("mps")
            return made * made

        inputs = (torch.ones(3, 4),)
    mac = target(release, macos)
    calls = calls_of(run, inputs, release, macos)
    assert calls
    for call, verdict in zip(calls, judge_all(calls, mac, load()), strict=True):
        if verdict.status != "native" or any(map(certain_error, verdict.evidence)):
            yield f"{call.op}: {verdict.status} {verdict.because}"


def certain_error(evidence: Any) -> bool:
    """Whether a known wrong result is met."""
    return bool(evidence.kind == "advisory")


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: remedy.id)
@pytest.mark.parametrize(("release", "macos"), TESTED, ids=map("-".join, TESTED))
def test_a_remedy_is_native_where_it_is_offered(remedy: Remedy, release: str, macos: str) -> None:
    result = list(not_native(remedy, release, macos))
    offered = (release, macos) in remedy.targets
    assert not result if offered else result, result


def test_a_line_has_the_users_own_names() -> None:
    remedy = for_kind("float64/numpy", target())
    assert remedy is not None
    assert remedy.use({"x": "window", "array": "hann(400)"}) == (
        "window = torch.from_numpy(hann(400)).to(torch.float32)"
    )


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: remedy.id)
def test_the_code_that_is_shown_stands_alone(remedy: Remedy) -> None:
    scope: dict[str, Any] = {}
    head = remedy.code().removesuffix(remedy.use())
    exec(compile("from __future__ import annotations\n" + head, remedy.id, "exec"), scope)  # noqa: S102
    compile(remedy.use(), remedy.id, "exec")
    assert set(remedy.functions) <= scope.keys()


def test_nothing_is_offered_below_what_was_tried() -> None:
    assert for_kind("complex128/numpy", target("2.1", "13.0")) is None
    assert for_kind("no such kind", target()) is None
