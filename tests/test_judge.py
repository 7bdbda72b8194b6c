from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcheck.judge import OUTCOMES, judge, judge_all, outcome
from opcheck.model import STATUSES, OpCall, Verdict
from opcheck.oplists.registrations import OpLists, Resolution
from tests.made import COMMIT, VALUES, call, make_lists, make_target, spec

LISTS = make_lists(sparse={"aten::mm": "kernel"})
REFUSAL = ("device_mismatch", "two devices")

_OPS = st.sampled_from([*VALUES, "aten::nope", "mylib::op", "flex_attention"])
_CALLS = st.builds(
    OpCall,
    op=_OPS,
    inputs=st.lists(
        st.sampled_from(
            [
                spec(1),
                spec(1, dtype="float64"),
                spec(1, layout="sparse_coo"),
                spec(1, layout="jagged"),
            ]
        ),
        max_size=2,
    ).map(tuple),
    inner=st.one_of(st.none(), st.lists(_OPS, max_size=3, unique=True).map(tuple)),
    refusal=st.sampled_from([None, REFUSAL]),
    registrations=st.sampled_from([(), ("CPU",), ("CompositeImplicitAutograd",), ("MPS",)]),
)


def verdict(op: str, *, cpu_fallback: bool = False, **others: object) -> Verdict:
    return judge(call(op, 1, **others), make_target(cpu_fallback=cpu_fallback), LISTS)


@pytest.mark.parametrize(
    ("op", "status", "kind", "because"),
    [
        ("mm", "native", None, "an MPS kernel is registered in torch 2.13.0"),
        (
            "special_python",
            "native",
            None,
            "an MPS kernel, written in Python, is registered in torch 2.13.0",
        ),
        (
            "embedding_renorm_",
            "fallback",
            "always",
            "torch 2.13.0 registers the CPU fallback for it, with or without the variable",
        ),
        (
            "foo",
            "fallback",
            "env",
            "no MPS kernel is registered in torch 2.13.0; a CPU kernel is",
        ),
        (
            "svd",
            "fallback",
            "env",
            "it calls aten::svd.U: no MPS kernel is registered in torch 2.13.0; a CPU kernel is",
        ),
        (
            "add",
            "native",
            None,
            "it calls aten::mm.out: an MPS kernel is registered in torch 2.13.0",
        ),
        (
            "stub",
            "unsupported",
            None,
            "what torch 2.13.0 registers for MPS does nothing but raise",
        ),
        (
            "digamma",
            "unsupported",
            None,
            "the MPS kernel registered in torch 2.13.0 calls digamma_stub, which MPS lacks",
        ),
        (
            "nothing",
            "unsupported",
            None,
            "neither an MPS kernel nor a CPU kernel is registered in torch 2.13.0",
        ),
        ("nope", "unknown", None, "torch 2.13.0 has no operator aten::nope"),
    ],
)
def test_each_registration(op: str, status: str, kind: str | None, because: str) -> None:
    found = verdict(f"aten::{op}")
    assert (found.status, found.kind, found.because) == (status, kind, because)


def test_evidence_follows_the_chain() -> None:
    found = verdict("aten::svd")
    assert [entry.detail for entry in found.evidence] == [
        "aten::svd: out:aten::svd.U",
        "aten::svd.U: cpu_only",
    ]
    assert {(e.kind, e.torch, e.where) for e in found.evidence} == {
        ("registration", "2.13.0", "torch/lib/libtorch_cpu.dylib")
    }


def test_the_mac_names_the_end_of_the_chain() -> None:
    assert verdict("aten::svd").named == "aten::svd.U"
    assert verdict("aten::foo").named == ""
    assert verdict("aten::svd").prints.startswith(
        "The operator 'aten::svd.U' is not currently implemented for the MPS device."
    )
    assert f"commit hash {COMMIT}." in verdict("aten::svd").prints


def test_the_variable_exchanges_the_error_for_the_warning() -> None:
    assert "is not currently implemented" in verdict("aten::foo").prints
    assert "will fall back to run on the CPU" in verdict("aten::foo", cpu_fallback=True).prints
    assert "will fall back to run on the CPU" in verdict("aten::embedding_renorm_").prints


def test_without_a_cpu_kernel_the_variable_only_changes_the_error() -> None:
    assert "is not currently implemented" in verdict("aten::nothing").prints
    assert verdict("aten::nothing", cpu_fallback=True).prints.startswith(
        "Could not run 'aten::nothing' with arguments from the 'CPU' backend."
    )


def test_a_refusal_wins_over_a_kernel() -> None:
    found = verdict("aten::mm", refusal=REFUSAL)
    assert (found.status, found.prints) == ("unsupported", REFUSAL[1])
    assert found.limitations == ("device_mismatch",)
    assert "device_mismatch" in found.because


@pytest.mark.parametrize(
    ("dtype", "torch", "macos", "refused"),
    [
        ("float64", "1.13", "13.0", True),
        ("float64", "2.15", "26.0", True),
        ("complex128", "2.14", "15.0", False),
        ("complex128", "2.15", "15.0", True),
        ("bfloat16", "2.2", "14.0", True),
        ("bfloat16", "2.3", "13.0", True),
        ("bfloat16", "2.3", "14.0", False),
        ("bfloat16", "2.9", "14.0", False),
        ("float32", "1.13", "13.0", False),
    ],
)
def test_some_dtypes_cannot_be_on_mps(
    *, dtype: str, torch: str, macos: str, refused: bool, lists: OpLists
) -> None:
    of_dtype = OpCall(op="aten::mul.Tensor", inputs=(spec(1, dtype=dtype),))
    for cpu_fallback in (False, True):
        target = make_target(torch, macos, cpu_fallback=cpu_fallback)
        found = judge(of_dtype, target, lists)
        assert (found.status == "unsupported") == refused
        named = [name for name in found.limitations if name.startswith(f"dtype-{dtype}")]
        assert bool(named) >= refused


def test_a_dtype_that_stays_on_the_cpu_is_no_matter() -> None:
    on_cpu = spec(2, dtype="float64", device="cpu")
    assert verdict("aten::mm", inputs=(spec(1), on_cpu)).status == "native"


@pytest.mark.parametrize(
    ("registrations", "says"),
    [
        (("CPU", "CompositeImplicitAutograd"), "could fall back with PYTORCH_ENABLE_MPS_FALLBACK"),
        (("CompositeImplicitAutograd",), "composite: what it calls decides"),
        (("MPS", "CPU"), "the Mac's build may not"),
        ((), "nothing is known about its kernels"),
    ],
)
def test_an_extension_is_unknown_whatever_it_registers_here(
    registrations: tuple[str, ...], says: str
) -> None:
    found = verdict("mylib::op", registrations=registrations)
    assert found.status == "unknown"
    assert "namespace mylib" in found.because
    assert says in found.because


@pytest.mark.parametrize(
    ("op", "layouts", "status"),
    [
        ("aten::mm", ("sparse_coo",), "native"),
        ("aten::mm", ("sparse_coo", "strided"), "native"),
        ("aten::relu", ("sparse_coo",), "unknown"),
        ("aten::mm", ("sparse_csr",), "unknown"),
        ("aten::mm", ("sparse_coo", "sparse_csr"), "unknown"),
        ("aten::mm", ("jagged",), "unknown"),
    ],
)
def test_sparse_inputs_are_judged_by_the_sparse_lists(
    op: str, layouts: tuple[str, ...], status: str
) -> None:
    inputs = tuple(spec(number, layout=layout) for number, layout in enumerate(layouts))
    assert verdict(op, inputs=inputs).status == status


@pytest.mark.parametrize(
    ("inner", "status", "kind", "named"),
    [
        ((), "native", None, ""),
        (("aten::mm",), "native", None, ""),
        (("aten::mm", "aten::foo"), "fallback", "env", "aten::foo"),
        (("aten::svd", "aten::embedding_renorm_"), "fallback", "env", "aten::svd.U"),
        (("aten::foo", "aten::nope"), "unknown", None, "aten::nope"),
        (("aten::implied",), "unknown", None, "aten::implied"),
        (("aten::nope", "aten::stub"), "unsupported", None, "aten::stub"),
        (None, "unknown", None, ""),
    ],
)
@pytest.mark.parametrize("op", ["aten::comp", "aten::comp.out", "aten::implied"])
def test_a_composite_is_as_bad_as_the_worst_that_it_calls(
    op: str, inner: tuple[str, ...] | None, status: str, kind: str | None, named: str
) -> None:
    found = verdict(op, inner=inner)
    assert (found.status, found.kind, found.named) == (status, kind, named)
    assert found.confidence == "inferred"


@given(_CALLS, st.booleans())
def test_every_call_gets_a_verdict_with_evidence(made: OpCall, variable: bool) -> None:
    found = judge(made, make_target(cpu_fallback=variable), LISTS)
    assert found.status in STATUSES
    assert (found.status, found.kind) in OUTCOMES
    assert found.because
    assert found.evidence


@given(_CALLS)
def test_the_variable_changes_no_status(made: OpCall) -> None:
    without = judge(made, make_target(), LISTS)
    with_it = judge(made, make_target(cpu_fallback=True), LISTS)
    assert (without.status, without.kind) == (with_it.status, with_it.kind)
    if without.status == "native":
        assert without == with_it
    if made.refusal:
        assert with_it.status == "unsupported"


@given(_CALLS)
def test_forgetting_what_a_body_calls_never_makes_a_verdict_native(made: OpCall) -> None:
    forgotten = msgspec.structs.replace(made, inner=None)
    if judge(made, make_target(), LISTS).status == "unknown":
        assert judge(forgotten, make_target(), LISTS).status != "native"


@given(_CALLS)
def test_an_unknown_part_never_leaves_a_composite_native(made: OpCall) -> None:
    op = "aten::comp"
    with_unknown = msgspec.structs.replace(
        made, op=op, inner=(*(made.inner or ()), "mylib::op"), refusal=None, inputs=()
    )
    assert judge(with_unknown, make_target(), LISTS).status in {"unknown", "unsupported"}


@given(st.lists(_CALLS, max_size=6), st.randoms())
def test_the_order_of_the_calls_changes_no_verdict(made: list[OpCall], random: object) -> None:
    alone = [judge(one, make_target(), LISTS) for one in made]
    assert list(judge_all(made, make_target(), LISTS)) == alone
    assert list(judge_all(made[::-1], make_target(), LISTS)) == alone[::-1]


def test_the_order_of_a_body_changes_no_verdict() -> None:
    inner = ("aten::foo", "aten::svd", "aten::mm", "aten::embedding_renorm_")
    found = {verdict("aten::comp", inner=order) for order in itertools.permutations(inner)}
    assert len(found) == 1


def test_the_severities_are_in_one_order() -> None:
    severities = [row.severity for row in OUTCOMES.values()]
    assert severities == sorted(set(severities))
    assert next(iter(OUTCOMES)) == ("native", None)
    assert outcome(verdict("aten::mm")).side == "mps"


def test_every_overload_of_every_release_gets_a_verdict(lists: OpLists) -> None:
    of_status: set[str] = set()
    for release in lists.releases:
        target = make_target(release.line)
        for op in lists.operators(release.line):
            found = judge(OpCall(op=op, inner=("mylib::op",)), target, lists)
            of_status.add(found.status)
            assert found.evidence
            composite = lists.resolve(op, release.line).status == "composite"
            assert (found.status == "unknown") == composite, op
    assert of_status == set(STATUSES)


@pytest.mark.parametrize(
    ("op", "torch", "status", "kind", "named"),
    [
        ("aten::linalg_svd", "2.13", "fallback", "always", ""),
        ("aten::_linalg_svd", "2.13", "fallback", "env", "aten::_linalg_svd.U"),
        ("aten::_linalg_svd", "2.14", "native", None, ""),
        ("aten::embedding_renorm_", "2.15", "fallback", "always", ""),
        ("aten::_slow_conv2d_forward", "2.15", "unsupported", None, ""),
        ("aten::col2im", "2.7", "fallback", "always", ""),
        ("aten::col2im", "2.8", "native", None, ""),
        ("aten::gcd", "2.9", "fallback", "env", "aten::gcd.out"),
    ],
)
def test_what_is_known_of_real_releases(
    *, op: str, torch: str, status: str, kind: str | None, named: str, lists: OpLists
) -> None:
    found = judge(OpCall(op=op), make_target(torch), lists)
    assert (found.status, found.kind) == (status, kind)
    if status != "native":
        assert found.named == named


def test_equal_calls_are_judged_once(lists: OpLists, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved: list[str] = []
    resolve = OpLists.resolve

    def counted(self: OpLists, op: str, line: str) -> Resolution:
        resolved.append(op)
        return resolve(self, op, line)

    monkeypatch.setattr(OpLists, "resolve", counted)
    calls = [call(op) for op in ("aten::mm", "aten::relu") for _ in range(1000)]
    judge_all(calls, make_target(), lists)
    assert resolved == ["aten::mm", "aten::relu"]


def test_the_release_decides() -> None:
    grown = make_lists({"aten::new": {"2.13": "cpu_only", "2.14": "kernel"}})
    statuses = [
        judge(call("aten::new"), make_target(line), grown).status
        for line in ("2.12", "2.13", "2.14")
    ]
    assert statuses == ["unknown", "fallback", "native"]
