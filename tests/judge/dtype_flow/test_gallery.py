"""Each program of the gallery: the finding names the line where the dtype begins, and how."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from opcheck.capture.child.run import run
from opcheck.capture.request import CaptureRequest
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import OpLists
from opcheck.judge.assembly import report
from opcheck.model.records import Finding
from tests.judge.dtype_flow import gallery
from tests.made import make_target

#: torch and macOS on which the program's dtype fails for certain, or may: (rule, what its text says).
OLD, NEW = ("2.4", "13"), ("2.13", "15")

CASES: dict[str, tuple[tuple[str, str], str, str]] = {
    "numpy_array": (NEW, "OC140", "torch.from_numpy takes the float64 of a NumPy array"),
    "numpy_as_tensor": (NEW, "OC140", "torch.as_tensor takes the float64 of a NumPy array"),
    "numpy_tensor": (NEW, "OC140", "torch.tensor takes the float64 of a NumPy array"),
    "numpy_asarray": (NEW, "OC140", "torch.asarray takes the float64 of a NumPy array"),
    "numpy_number": (NEW, "OC140", "torch.tensor takes the float64 of a NumPy number"),
    "numpy_number_on_the_device": (NEW, "OC140", "float64"),
    "numpy_parameter": (NEW, "OC140", "NumPy array (gain)"),
    "numpy_and_then_computed": (NEW, "OC140", "NumPy array (table)"),
    "numpy_in_the_forward": (NEW, "OC140", "NumPy array"),
    "scipy_window": (NEW, "OC140", "NumPy array"),
    "betas_of_a_scheduler": (NEW, "OC140", "NumPy array"),
    "default_dtype": (NEW, "OC140", "torch.set_default_dtype makes float64 the default"),
    "double_method": (NEW, "OC140", "torch.Tensor.double makes it float64"),
    "double_attribute": (NEW, "OC140", "torch.Tensor.double makes it float64"),
    "double_on_the_device": (NEW, "OC140", "makes it float64"),
    "to_float64": (NEW, "OC140", "makes it float64"),
    "to_by_type_name": (NEW, "OC140", "torch.Tensor.type makes it float64"),
    "module_double": (NEW, "OC140", "Module.double casts a whole module"),
    "dtype_of_a_factory": (NEW, "OC140", "torch.linspace is called with float64"),
    "dtype_of_a_factory_on_the_device": (NEW, "OC140", "linspace is called with float64"),
    "dtype_of_a_list": (NEW, "OC140", "torch.tensor is called with float64"),
    "dtype_of_a_sum": (NEW, "OC140", "sum is called with float64"),
    "dtype_of_a_cumulative_sum": (NEW, "OC140", "cumsum is called with float64"),
    "dtype_of_new_tensor": (NEW, "OC140", "is called with float64"),
    "dtype_of_a_random_draw": (NEW, "OC140", "randn is called with float64"),
    "buffer_of_bytes": (NEW, "OC140", "torch.frombuffer is called with float64"),
    "complex_number": (OLD, "OC141", "gets a Python complex number"),
    "complex_polar": (OLD, "OC141", "makes a complex tensor of real ones"),
    "complex_table": (OLD, "OC141", "torch.polar makes a complex tensor"),
    "complex_of_real_pairs": (OLD, "OC141", "makes a complex tensor of real ones"),
    "complex_of_two_parts": (OLD, "OC141", "makes a complex tensor of real ones"),
    "complex_spectrum": (OLD, "OC141", "makes a spectrum"),
    "complex_stft": (OLD, "OC141", "makes a spectrum"),
    "complex_parameter": (OLD, "OC141", "torch.randn is called with complex64"),
    "complex_of_numpy": (NEW, "OC140", "takes the complex128 of a NumPy array"),
    "half_complex": (OLD, "OC141", "torch.ones is called with complex32"),
    "unsigned_table": (OLD, "OC142", "torch.ones is called with uint16"),
    "unsigned_numpy": (OLD, "OC142", "takes the uint32 of a NumPy array"),
    "float8_weight": (OLD, "OC142", "torch.Tensor.to makes it float8_e4m3fn"),
}
ORIGINS = {"OC140", "OC141", "OC142"}


def _findings(name: str, versions: tuple[str, str], lists: OpLists) -> list[Finding]:
    file = str(Path(gallery.__file__))
    request = CaptureRequest(model=f"{file}:{name}", target=make_target(versions[0], versions[1]))
    trace = run(request, lambda *_, **__: None).trace
    target = Target(torch=Version.parse(versions[0]), macos=Version.parse(versions[1]))
    made = report(trace, target, lists)
    assert trace.complete, trace.problems
    return [finding for finding in made.findings if finding.rule in ORIGINS]


def _line_of_origin(name: str) -> int:
    lines, first = inspect.getsourcelines(getattr(gallery, name))
    return first + next(i for i, line in enumerate(lines) if line.rstrip().endswith("# origin"))


@pytest.mark.parametrize("name", CASES)
def test_one_finding_at_the_origin(name: str, lists: OpLists) -> None:
    versions, rule, result = CASES[name]
    (finding,) = _findings(name, versions, lists)
    assert finding.rule == rule
    where = finding.locations[0].location
    assert where is not None
    assert (where.file.rpartition("/")[2], where.line) == ("gallery.py", _line_of_origin(name))
    assert result in finding.message


def test_the_gallery_has_no_program_that_is_not_tried() -> None:
    marked = {
        name
        for name, made in inspect.getmembers(gallery, inspect.isfunction)
        if made.__module__ == gallery.__name__ and "# origin" in inspect.getsource(made)
    }
    assert marked == set(CASES)


@pytest.mark.parametrize("name", ["stays_on_the_cpu", "cast_before_the_move", "plain_numbers"])
def test_silent_where_nothing_of_it_comes_to_mps(name: str, lists: OpLists) -> None:
    assert _findings(name, NEW, lists) == []


@pytest.mark.parametrize("name", ["complex_number", "complex_spectrum", "complex_of_two_parts"])
def test_silent_where_the_target_takes_it(name: str, lists: OpLists) -> None:
    assert _findings(name, NEW, lists) == []
