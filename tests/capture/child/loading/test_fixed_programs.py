"""Programs of torch.export, given as objects and as files: what a Mac does with them, and where."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import opcheck
from opcheck.capture.child.loading.fixed_programs import set_training
from opcheck.common.errors import InputError, ModelLoadError
from opcheck.model.records import Report
from opcheck.tracing.source_locations import locate_in_text

pytestmark = [
    # torch 2.9 reads weights from a buffer of its own that it may not write to.
    pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning"),
    # torch.export's own words of an LSTM's list of weights
    pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning"),
]

LINES = '''
import torch
from torch import nn


class Net(nn.Module):
    """Convolution, batch norm, linear."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(x.mean((2, 3)))


class Devices(nn.Module):
    """Devices of the machine that it is exported on become constants."""

    def forward(self, x):
        x = x + torch.arange(x.shape[0], device=x.device) + torch.full((3,), 2.0)
        return (x + torch.tensor([1.0, 2.0, 3.0])).half().to(x.device)


class Constant(nn.Module):
    """A tensor that is no buffer."""

    def __init__(self):
        super().__init__()
        self.table = torch.tensor([1.0, 2.0, 3.0])

    def forward(self, x):
        return x + self.table


class Counts(nn.Module):
    """Changes a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen.add_(1)
        return x + self.seen


class Double(nn.Module):
    """A buffer that no Mac takes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.linspace(0, 1, 3, dtype=torch.float64))

    def forward(self, x):
        return x * self.table


class Branches(nn.Module):
    """A higher-order operator, whose branches are graphs of their own."""

    def forward(self, x):
        return torch.cond(
            x.sum() > 0, lambda x: x.sin() + torch.ones(3), lambda x: x.cos(), (x,)
        )


class Named(nn.Module):
    """Takes its arguments by name."""

    def forward(self, x, *, scale):
        return x * scale
'''


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module of LINES: Dynamo and the report look its lines up."""
    folder = tmp_path_factory.mktemp("nets")
    (folder / "exported_nets.py").write_text(LINES)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield importlib.import_module("exported_nets")
    del sys.modules["exported_nets"]


def _image(batch: int = 2) -> torch.Tensor:
    return torch.ones(batch, 3, 16, 16)


def _export(model: nn.Module, *args: Any, **options: Any) -> torch.export.ExportedProgram:
    return torch.export.export(model, args, **options)


def _audit(program: Any, inputs: Any = None, **options: Any) -> Report:
    return opcheck.audit(program, inputs, torch="2.13", macos="15", **options)


Make = Callable[[Any], torch.export.ExportedProgram]

NATIVE: Mapping[str, Make] = {
    "linear": lambda _: _export(nn.Linear(4, 2).eval(), torch.ones(3, 4)),
    "convolutional": lambda nets: _export(nets.Net().eval(), _image()),
    "in training mode": lambda nets: _export(nets.Net().train(), _image()),
    "transformer": lambda _: _export(
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1).eval(), torch.ones(2, 5, 16)
    ),
    "lstm": lambda _: _export(nn.LSTM(4, 8, batch_first=True).eval(), torch.ones(2, 5, 4)),
    "dynamic": lambda nets: _export(
        nets.Net().eval(), _image(4), dynamic_shapes={"x": {0: torch.export.Dim("batch", max=64)}}
    ),
    "devices": lambda nets: _export(nets.Devices(), torch.ones(3)),
    "constant": lambda nets: _export(nets.Constant(), torch.ones(3)),
    "mutated buffer": lambda nets: _export(nets.Counts(), torch.ones(3)),
    "branches": lambda nets: _export(nets.Branches(), torch.ones(3)),
    "names": lambda nets: _export(nets.Named(), torch.ones(3), kwargs={"scale": torch.ones(3)}),
    "indices": lambda _: _export(nn.Embedding(10, 4), torch.tensor([1, 9])),
}


@pytest.mark.parametrize("name", NATIVE)
def test_programs_run_natively(nets: Any, name: str) -> None:
    report = _audit(NATIVE[name](nets))
    assert report.headline == "runs natively"
    assert report.capture.tracer == "exported program"
    assert report.capture.inputs_note == "the inputs that came with the model"
    assert any("what torch.export fixed" in line for line in report.not_checked)


def test_the_module_of_a_program_is_audited_too(nets: Any) -> None:
    around = nn.Sequential(_export(nets.Net().eval(), _image()).module(), nn.Linear(4, 2))
    assert _audit(around, (_image(),)).headline == "runs natively"


def test_findings_name_the_exported_line_and_module(nets: Any) -> None:
    report = _audit(_export(nets.Net().eval(), _image()))
    groups = {group.op: group.locations[0] for group in report.groups}
    places = {op: (place.module, place.location.text if place.location else "") for op, place in groups.items()}
    assert places["aten::convolution"] == ("conv", "x = torch.relu(self.norm(self.conv(x)))")
    assert places["aten::linear"] == ("head", "return self.head(x.mean((2, 3)))")
    assert places["aten::mean.dim"][0] == "Net"


@pytest.mark.parametrize(
    ("trace", "file", "text"),
    [
        (
            (
                'File "/home/ann/net.py", line 7, in forward\n    return self.head(x)\n'
                'File "/opt/py/lib/python3.12/site-packages/torch/nn/modules/linear.py", line 1, in forward\n'
                "    return F.linear(input)"
            ),
            "net.py",
            "return self.head(x)",
        ),
        (
            (
                'File "/opt/py/lib/python3.12/site-packages/lib/net.py", line 3, in call\n    x = x + 1\n'
                'File "/opt/py/lib/python3.12/contextlib.py", line 81, in inner\n    return func()'
            ),
            "lib/net.py",
            "x = x + 1",
        ),
        ('File "C:\\py\\Lib\\site-packages\\lib\\net.py", line 3, in call', "lib/net.py", ""),
    ],
)
def test_lines_of_another_machine_are_read_from_the_program(trace: str, file: str, text: str) -> None:
    place = locate_in_text(trace)
    assert place is not None
    assert (place.file, place.text) == (file, text)


def test_a_trace_shows_no_line_of_a_file_that_it_does_not_hold(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text("key = 'secret'\n")
    for file in (tmp_path / "settings.py", "/dev/zero", "/a/site-packages//etc/passwd"):
        for text in ("", "\n    key = 1"):
            place = locate_in_text(f'File "{file}", line 1, in forward{text}')
            assert place is not None
            assert (place.file, place.text) == (Path(file).name, text.strip())
            assert not place.statement


def test_a_float64_buffer_fails(nets: Any) -> None:
    report = _audit(_export(nets.Double(), torch.ones(3)))
    assert report.headline == "fails"
    assert "table" in next(finding.message for finding in report.findings if finding.rule == "OC140")


def test_a_constant_device_that_differs_from_the_accelerator_stays() -> None:
    program = _export(nn.Linear(4, 2), torch.ones(3, 4))
    graph = program.graph_module.graph
    output = next(node for node in graph.nodes if node.op == "output")
    with graph.inserting_before(output):
        for device in ("cuda", "cpu"):
            graph.call_function(torch.ops.aten.ones.default, ([2],), {"device": torch.device(device)})
    report = _audit(program)
    counts = {group.op: group.count for group in report.groups}
    assert counts == {"aten::linear": 1, "aten::ones": 1}, "ones on the CPU is no call of the Mac's"


@pytest.mark.parametrize("inputs", [(_image(1),), (_image(), _image()), {"y": _image()}])
def test_inputs_that_it_was_not_exported_for_are_refused(nets: Any, inputs: Any) -> None:
    with pytest.raises(InputError) as caught:
        _audit(_export(nets.Net().eval(), _image()), inputs)
    what, where, then = str(caught.value).splitlines()
    assert what.startswith("the program was exported for other inputs: ")
    assert where.startswith("  in: ")
    assert then.startswith("  help: give inputs=2x3x16x16:float32")


def test_training_is_refused_in_three_lines(nets: Any) -> None:
    program = _export(nets.Net().eval(), _image())
    around = nn.Sequential(nn.Identity(), program.module())
    for model, where in ((program, ""), (around, ", module 1")):
        with pytest.raises(ModelLoadError) as caught:
            _audit(model, (_image(),), mode="train")
        what, context, then = str(caught.value).splitlines()
        assert what == "an exported program is audited for inference only, not for training"
        assert context.startswith("  in: model ")
        assert context.endswith(where)
        assert then.startswith("  help: to train, name the torch.nn.Module")


def test_the_mode_of_the_modules_around_a_program_is_set(nets: Any) -> None:
    program = _export(nets.Net().eval(), _image()).module()
    around = nn.Sequential(program, nn.Dropout())
    for _ in range(2):
        set_training(around, "net", training=False)
        assert not around[1].training
        assert around(_image()).shape == (2, 4)


def test_a_program_without_inputs_of_its_own(nets: Any) -> None:
    program = _export(nets.Net().eval(), _image(), dynamic_shapes={"x": {0: torch.export.Dim.AUTO}})
    program.example_inputs = None
    report = _audit(program)
    assert report.headline == "runs natively"
    assert report.capture.inputs == ("2x3x16x16:float32",)
