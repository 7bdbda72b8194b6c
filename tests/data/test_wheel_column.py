"""From made facts to values, and from values to files."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("lief")

from opcheck.common.errors import OpListError
from opcheck.data.files import Counts, Release, read_releases
from opcheck.data.registrations import FILES, load
from opcheck.data.wheels import column
from opcheck.data.wheels.column import Registration, Schema
from opcheck.data.wheels.release import ReleaseFacts, merge_release


def registered(key: str, *names: str, symbols: str = "") -> list[Registration]:
    by_hand = "mps" in symbols
    return [Registration("aten", key, name, frozenset({symbols}), by_hand) for name in names]


FALLBACKS = [
    Registration("_", "MPS", None, frozenset({f"_ZN2atL{name}RKN3c10"}), True)
    for name in ("12mps_fallbackE", "18mps_error_fallbackE")
]
HAND = [
    *registered("MPS", "aten::fell", symbols="L12mps_fallbackE"),
    *registered("MPS", "_slow_conv2d_forward", symbols="L23slow_conv2d_forward_mpsE"),
]
SCHEMAS = {
    "aten::native": Schema(generated=False, keys=("MPS",)),
    "aten::fell": Schema(generated=False, keys=()),
    "aten::_slow_conv2d_forward": Schema(generated=False, keys=()),
    "aten::made": Schema(generated=False, keys=(), out="aten::made.out"),
    "aten::made.out": Schema(generated=False, keys=()),
    "aten::grow": Schema(generated=False, keys=()),
    "aten::grow.out": Schema(generated=True, keys=(), base="aten::grow"),
    "aten::implicit": Schema(generated=False, keys=()),
    "aten::nothing": Schema(generated=False, keys=()),
    "aten::from_python": Schema(generated=False, keys=()),
    "aten::kaiser_window": Schema(generated=False, keys=()),
}


def test_the_values_follow_the_dispatchers_order() -> None:
    result = column.dispatch(
        (
            *FALLBACKS,
            *HAND,
            *registered("MPS", "native"),
            *registered("CompositeExplicitAutogradNonFunctional", "made"),
            *registered("CompositeExplicitAutograd", "grow", "grow.out", "kaiser_window", "native"),
            *registered("CompositeImplicitAutograd", "implicit", "fell"),
            *registered("CPU", "made.out", "native", "fell", "implicit"),
        )
    )
    column.check(result, SCHEMAS)
    assert column.column(result, SCHEMAS, {"aten::from_python"}, {"kaiser_window_stub": False}) == {
        "aten::from_python": "python_kernel",
        "aten::fell": "cpu_fallback",
        "aten::_slow_conv2d_forward": "error_stub",
        "aten::native": "kernel",
        "aten::made": "out:aten::made.out",
        "aten::made.out": "cpu_only",
        "aten::kaiser_window": "missing_stub:kaiser_window_stub",
        "aten::grow": "composite_explicit",
        "aten::grow.out": "wrapper:aten::grow",
        "aten::implicit": "composite_implicit",
        "aten::nothing": "no_dense_kernel",
    }


def test_a_stub_with_a_kernel_is_not_missing() -> None:
    result = column.dispatch((*FALLBACKS, *registered("CompositeExplicitAutograd", "kaiser_window")))
    values = column.column(result, SCHEMAS, set(), {"kaiser_window_stub": True})
    assert values["aten::kaiser_window"] == "composite_explicit"


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (registered("MPS", "made"), "MPS: in the library only"),
        (registered("SparseMPS", "made"), "SparseMPS: in the library only"),
        (registered("CPU", "undeclared"), "kernels without a schema"),
        (registered("MPS", "grow", symbols="L23slow_conv2d_forward_mpsE"), "error stubs"),
        (registered("MPS", "native", symbols="L12mps_fallbackE"), "that the yaml calls a kernel"),
    ],
)
def test_a_broken_invariant_stops_the_build(extra: list[Registration], message: str) -> None:
    result = column.dispatch((*FALLBACKS, *HAND, *registered("MPS", "native"), *extra))
    with pytest.raises(OpListError, match=message) as caught:
        column.check(result, SCHEMAS)
    assert len(str(caught.value).splitlines()) == 3


def test_a_yaml_kernel_that_the_library_lacks_stops_the_build() -> None:
    with pytest.raises(OpListError, match="MPS: in the yaml only"):
        column.check(column.dispatch((*FALLBACKS, *HAND)), SCHEMAS)


def test_both_backend_wide_fallbacks_are_needed() -> None:
    with pytest.raises(OpListError, match="not the two that are known"):
        column.dispatch(tuple(FALLBACKS[:1]))


def test_autocast_policies_are_named() -> None:
    symbol = "__ZN2at8autocast13WrapFunction_ILNS0_10CastPolicyE4ELN3c1010DeviceTypeE13E"
    result = column.dispatch((*FALLBACKS, *registered("AutocastMPS", "aten::dot", symbols=symbol)))
    assert result.autocast == {"aten::dot": "promote"}
    with pytest.raises(OpListError, match="CastPolicy"):
        column.dispatch((*FALLBACKS, *registered("AutocastMPS", "aten::dot", symbols="other")))


def facts(torch: str, values: dict[str, str]) -> ReleaseFacts:
    counts = Counts(
        aten_mps=1,
        sparse_mps=0,
        sparse_csr_mps=0,
        autocast_mps=0,
        always_fallback=0,
        python=0,
        stubs_with_mps=0,
        overloads=len(values),
    )
    release = Release(
        torch=torch,
        line=torch.rpartition(".")[0],
        wheel="made.whl",
        sha256="0",
        commit="0",
        built=date(2026, 1, 2),
        minimum_macos="14.0",
        minimum_macos_text="from 14.0+ on",
        counts=counts,
    )
    columns: dict[str, dict[str, str]] = {key: {} for key in FILES}
    return ReleaseFacts(release=release, columns={**columns, "MPS": values})


def write(made: ReleaseFacts, directory: Path) -> None:
    for file, text in merge_release(made, directory).items():
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).write_text(text)


def contents(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(directory.rglob("*.*"))}


def test_the_order_of_whole_builds_leaves_no_trace(tmp_path: Path) -> None:
    releases = [
        facts("2.9.1", {"aten::a": "cpu_only", "aten::b": "kernel"}),
        facts("2.10.0", {"aten::a": "kernel"}),
        facts("1.13.1", {"aten::b": "kernel"}),
    ]
    for name, order in {"one": (0, 1, 2), "other": (2, 1, 0), "again": (1, 0, 2, 1)}.items():
        for index in order:
            write(releases[index], tmp_path / name)
    assert contents(tmp_path / "one") == contents(tmp_path / "other") == contents(tmp_path / "again")
    lists = load(tmp_path / "one")
    assert [release.line for release in lists.releases] == ["1.13", "2.9", "2.10"]
    assert lists.history("aten::b") == (("1.13", "kernel"), ("2.10", None))
    assert read_releases(tmp_path / "one" / "releases.yaml")[0][2] == releases[1].release


def test_histories_without_their_releases_are_refused(tmp_path: Path) -> None:
    write(facts("2.9.1", {"aten::a": "kernel"}), tmp_path)
    (tmp_path / "releases.yaml").unlink()
    with pytest.raises(OpListError, match="without their releases"):
        merge_release(facts("2.10.0", {}), tmp_path)
