"""How a program ends: on what no Mac has, by opcheck's own limit, by its own error, or without having used mps."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
import torch

import opcheck
from opcheck import cli
from opcheck.capture.child import endings
from opcheck.data import messages
from opcheck.device.emulator import emulated_run, user_program
from opcheck.simulator.errors import NotSimulatedError
from opcheck.simulator.visible.start_methods import is_not_spawned
from tests.device.emulator.test_mac_programs import Server

_NO_CUDA = "Torch not compiled with CUDA enabled"


class Ended(NamedTuple):
    """How a verb ended."""

    code: int
    err: str
    report: dict[str, Any]

    @property
    def rules(self) -> list[str]:
        return [finding["rule"] for finding in self.report["findings"]]

    @property
    def first(self) -> dict[str, Any]:
        finding: dict[str, Any] = self.report["findings"][0]
        return finding


class Started(Protocol):
    """Runs a verb on a program, with the program's process a fork of one that has imported torch."""

    def __call__(self, verb: str, text: str, *words: str, of: str = "") -> Ended:
        """Return how the verb ended."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("settings"))
    yield started
    started.close()


@pytest.fixture
def opcheck_on(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Started:
    def run_program(_function: str, asked: Path, *_others: object, **_named: object) -> int:
        code, text = server.work(asked, tmp_path)
        sys.stderr.write(text)
        return code

    def start(verb: str, text: str, *words: str, of: str = "") -> Ended:
        Path("program.py").write_text(text, encoding="utf-8")
        report = Path("report.json")
        target = () if "-q" in words else ("-o", str(report))
        options = (*target, "--torch=2.13", "--macos=15")
        flags = tuple(word for word in words if word == "-q")
        rest = tuple(word for word in words if word != "-q")
        capfd.readouterr()
        code = cli.invoke([verb, *flags, *options, f"program.py{of}", *rest])
        content = json.loads(report.read_text()) if report.exists() else {}
        return Ended(code, capfd.readouterr().err, content)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(emulated_run, "run_program", run_program)
    return start


def test_a_program_that_asks_for_cuda_is_a_finding_at_its_line(opcheck_on: Started) -> None:
    text = "import torch\nx = torch.ones(2, device='mps')\ny = x.to('cuda')\n"
    ended = opcheck_on("run", text)
    assert ended.code == 1
    assert ended.report["headline"] == "fails"
    assert ended.rules == ["OC124"]
    assert ended.first["prints"] == _NO_CUDA
    assert ended.first["locations"][0]["line"] == "program.py:3"
    assert "opcheck scan" in ended.first["hint"]
    assert f"AssertionError: {_NO_CUDA}" in ended.err


_CONSTRUCTOR = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(2, 2).cuda()
    def forward(self, x):
        return self.a(x)
"""
_FORWARD = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        return y + torch.ones(2, device="cuda:0")
"""
_IMPORT = "import flash_attn\n" + _FORWARD


@pytest.mark.parametrize(
    ("text", "line"),
    [(_CONSTRUCTOR, 6), (_FORWARD, 6), (_IMPORT, 1)],
    ids=["in the constructor", "in the forward", "in an import"],
)
def test_an_audited_model_that_asks_for_cuda_is_a_finding_at_its_line(
    opcheck_on: Started, text: str, line: int
) -> None:
    ended = opcheck_on("audit", text, "--input", "2x2", of=":Net")
    assert ended.code == 1, ended.err
    assert ended.report["headline"] == "fails"
    assert ended.rules[0] == "OC124"
    assert ended.first["locations"][0]["line"] == f"program.py:{line}"


def raised(source: str) -> BaseException:
    """What a statement raises on the emulated Mac."""
    with opcheck.emulate(torch="2.13", macos="15"):
        try:
            exec(source, {"torch": torch})  # noqa: S102 - what a program would do
        except BaseException as error:  # noqa: BLE001
            return error
    raise AssertionError(f"{source} raised nothing")


def test_the_accelerator_that_cpp_looks_for_on_this_machine_is_a_limit_and_no_error_of_the_program() -> None:
    assert endings.is_limit(raised("torch._C._accelerator_getStream(0)"))


@pytest.mark.parametrize(
    "text",
    [
        "Cannot access data pointer of Tensor that doesn't have storage",
        "Cannot access data pointer of Storage that is invalid.",
        "Cannot access data pointer of Tensor (e.g. FakeTensor, FunctionalTensor). If you're using torch.compile",
    ],
)
def test_a_kernel_that_reads_the_memory_of_a_simulated_tensor_is_a_limit(text: str) -> None:
    assert endings.is_limit(RuntimeError(text))


@pytest.mark.parametrize(
    "source",
    [
        "torch.ones(2, device='cuda')",
        "torch.ones(2).to('cuda:0')",
        "torch.ones(2).cuda()",
        "torch.ones(2, device='mps').cuda()",
        "torch.ones(2, device='mps').to('cuda')",
        "torch.nn.Linear(2, 2).to('mps').to('cuda')",
        "torch.ones(2, device='mps').to('xpu')",
        "torch.ones(2, device='xpu')",
        "torch.ones(2, device='hpu')",
        "torch.ones(2, device='xla')",
        "torch.cuda.current_device()",
        "torch.cuda.get_device_name(0)",
        "torch.cuda.set_device(0)",
        "torch.cuda.synchronize()",
        "torch.cuda.Stream()",
        "torch.cuda.Event()",
        "torch.cuda.CUDAGraph()",
        "torch.cuda.reset_peak_memory_stats()",
        "torch.cuda.FloatTensor(2)",
        "torch.cuda.nvtx.range_push('step')",
        "torch.Generator('cuda')",
        "torch.Generator(device='cuda:0')",
        "import triton",
        "import flash_attn_2_cuda",
    ],
)
def test_what_no_mac_has_is_known_by_its_exception(source: str) -> None:
    assert endings.kind_of(raised(source)) in {"needs_cuda", "needs_package"}


def test_a_checkpoint_of_cuda_is_known_with_its_way_out() -> None:
    text = (
        "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. "
        "If you are running on a CPU-only machine, please use torch.load with "
        "map_location=torch.device('cpu') to map your storages to the CPU."
    )
    assert endings.kind_of(RuntimeError(text)) == "needs_cuda"
    assert "map_location" in messages.remedy_for("without_cuda", text)


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("FlashAttention2 has been toggled on, but the package flash_attn seems to be not installed", "flash-attn"),
        ("this model requires xformers", "xformers"),
        ("cannot import name 'Foo' from 'transformers'", ""),
    ],
)  # fmt: skip
def test_a_library_that_misses_a_package_of_cuda_names_it(text: str, package: str) -> None:
    assert endings.missing_package(ImportError(text)) == package


@pytest.mark.parametrize(
    "source",
    [
        "1 / 0",
        "raise AssertionError('mine')",
        "torch.ones(2, 3, device='mps') @ torch.ones(2, 3, device='mps')",
        "torch.ones(2, device='mps').no_such_attribute",
        "torch.ones(2, device='mps').sum(no_such_argument=3)",
        "torch.ones(2, device='mps')[3]",
        "torch.nn.Linear(2, 2)(torch.ones(2, 3))",
        "torch.nn.Linear(2, 2).to('mps')(torch.ones(2, 3, device='mps'))",
        "torch.nn.functional.linear('a', 'b')",
        "torch.ones(2, device='mps').numpy()",
        "torch.ones(2, device='mps') + torch.ones(2)",
        "torch.ones(2, device='mps', dtype=torch.float64)",
        "torch.ones(2, device='mps').view(3)",
        "torch.ones(2, requires_grad=True, device='mps').backward()",
        "import no_such_module",
    ],
)
def test_the_programs_own_errors_and_the_macs_are_none_of_opchecks(source: str) -> None:
    assert endings.kind_of(raised(source)) == ""


def test_what_is_not_emulated_is_a_limit_of_opcheck(opcheck_on: Started) -> None:
    text = "import torch\nx = torch.ones(2, device='mps')\ntorch.mps.compile_shader('kernel')\n"
    ended = opcheck_on("run", text)
    assert ended.code == 3
    assert ended.report["headline"] == "could not tell"
    assert ended.rules == ["OC125"]
    assert "no error of the program's" in ended.first["message"]
    assert ended.first["locations"][0]["line"] == "program.py:3"
    assert "opcheck/simulator/visible/surface.py" in ended.err  # the whole traceback, for a report


def test_a_mistake_inside_of_opcheck_is_a_limit_of_opcheck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opcheck.simulator.dispatch.dispatcher.make_route", lambda *_: None)
    error = raised("torch.ones(2, device='mps')")
    assert isinstance(error, AttributeError)
    assert endings.kind_of(error) == "opcheck_limit"


@pytest.mark.parametrize("place", ["check_layout", "math"])
def test_an_audit_tells_opchecks_limit_from_the_models_error(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def refuse(*_: object) -> None:
        raise NotSimulatedError("aten::add.Tensor has no shape rule")

    broken = {"check_layout": refuse, "math": None}[place]

    def compare(x: torch.Tensor) -> torch.Tensor:
        monkeypatch.setattr(f"opcheck.simulator.dispatch.calls.{place}", broken)
        return x + 1

    report = opcheck.audit(compare, (torch.zeros(200, 200),), torch="2.13")
    assert report.headline == "could not tell"
    assert [finding.rule for finding in report.findings if finding.severity == "error"] == ["OC125"]


@pytest.mark.parametrize(
    ("text", "cause", "code"),
    [
        ("print(1)", "did not import torch", 3),
        ("import torch\ntorch.nn.Linear(2, 2)(torch.ones(2))", "operator calls on the CPU", 3),
        ("import torch\ndef main():\n    torch.ones(2)\n", "made no tensor at all", 3),
        ("import subprocess, sys, torch\nsubprocess.run([sys.executable, '-c', 'pass'])", "other processes", 3),
        ("import torch\ntorch.nn.Linear(2, 2).to('mps')", "nothing was computed there", 0),
    ],
    ids=["no torch", "the CPU", "not called", "a process", "only moves"],
)
def test_a_run_without_a_call_on_mps_says_what_happened_instead(
    opcheck_on: Started, text: str, cause: str, code: int
) -> None:
    ended = opcheck_on("run", text)
    assert ended.code == code
    assert ended.rules == ["OC120"]
    assert cause in ended.first["message"]


_EIGENVALUES = "torch.linalg.eigvals(torch.eye(2, device='mps'))"
_HANDLED = f"import sys, torch\ntry:\n    {_EIGENVALUES}\nexcept NotImplementedError as error:\n    "
_THREADS = (
    "import torch\nfrom concurrent.futures import ThreadPoolExecutor\n"
    "with ThreadPoolExecutor(1) as pool:\n"
    "    first, last = [pool.submit(torch.linalg.eigvals, torch.eye(2, device='mps')) for _ in 'ab']\n"
    "    last.exception()\n    first.result()\n"
)


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        (_HANDLED + "sys.exit(1)", "fails"),
        (_HANDLED + "raise ValueError('a step failed') from error", "fails"),
        (_HANDLED + "raise ValueError('no step')", "fails"),
        (_HANDLED + "raise ValueError('a step failed') from None", "could not tell"),
        (_HANDLED + "pass\nraise ValueError('something else')", "could not tell"),
        (_THREADS, "fails"),
    ],
    ids=["exit", "from it", "while handled", "from None", "after it", "an earlier thread"],
)
def test_an_end_that_follows_from_what_a_mac_raises_is_a_failure(text: str, headline: str) -> None:
    with pytest.raises((SystemExit, ValueError, NotImplementedError)), opcheck.emulate("2.13", "15") as run:
        exec(text, {"torch": torch})  # noqa: S102 - the programs of the table above
    assert run.report.headline == headline
    assert "OC102" in [finding.rule for finding in run.report.findings]


def test_an_exit_with_a_message_is_an_exit_with_1(opcheck_on: Started) -> None:
    ended = opcheck_on("run", "import sys, torch\nsys.exit('no data')")
    assert ended.first["message"] == "the program ended itself with exit code 1: no data"


def test_a_program_with_a_mistake_in_its_syntax_is_no_limit_of_opcheck(opcheck_on: Started) -> None:
    ended = opcheck_on("run", "import torch\nx = (\n")
    assert ended.code == 3
    assert ended.rules == ["OC120"]
    assert "SyntaxError: '(' was never closed" in ended.first["message"]
    assert "opcheck" not in ended.err.partition("could not tell")[0]


def test_a_missing_argument_is_told_as_the_programs_exit(opcheck_on: Started) -> None:
    text = "import sys, torch\nsys.exit(2)"
    ended = opcheck_on("run", text)
    assert ended.code == 3
    assert "exit code 2" in ended.first["message"]
    assert "argument" in ended.first["hint"]


@pytest.mark.parametrize(
    ("text", "rule", "message"),
    [
        ("torch.linalg.eigvals(torch.eye(2, device='mps'))", "OC102", "no MPS kernel"),
        ("torch.ones(2, device='mps').double()", "OC105", ""),
        ("import surely_not_installed", "OC120", "surely_not_installed"),
        ("raise ValueError('mine')", "OC120", "ValueError: mine"),
    ],
    ids=["no kernel", "float64", "a module that is missing", "an error of its own"],
)
def test_an_end_is_one_finding(text: str, rule: str, message: str) -> None:
    with pytest.raises((RuntimeError, TypeError, ValueError, ImportError)), opcheck.emulate("2.13", "15") as run:
        exec(text, {"torch": torch})  # noqa: S102 - the four programs of the table above
    (finding,) = [finding for finding in run.report.findings if finding.severity == "error"]
    assert finding.rule == rule
    assert message in finding.message
    assert ("PYTHONPATH" in finding.hint) is ("installed" in message)


@pytest.mark.parametrize(
    ("text", "code", "headline"),
    [
        ("import torch\nx = torch.ones(2, device='mps') + 1\n", 0, "runs natively"),
        ("import torch\nx = torch.ones(2, device='mps').double()\n", 1, "fails"),
    ],
    ids=["nothing found", "an error"],
)
def test_a_quiet_run_writes_the_headline_alone(opcheck_on: Started, text: str, code: int, headline: str) -> None:
    ended = opcheck_on("run", text, "-q")
    assert ended.code == code
    ours = ended.err[ended.err.rfind("\n", 0, -1) + 1 :]
    assert ours.startswith(f"{headline}: program.py on torch 2.13, macOS 15.0; ")
    # The rest is the program's own traceback.
    assert ended.err.removesuffix(ours) == "" if not code else ended.err.startswith("Trace")
    assert "Evidence" not in ended.err


def test_an_error_without_a_message_is_named_alone(opcheck_on: Started) -> None:
    ended = opcheck_on("run", "import torch\nassert not torch.ones(1)")
    assert ended.first["message"] == "the program ended with AssertionError"


class _Unreadable:
    def __str__(self) -> str:
        raise KeyError


class _Interrupting:
    def __str__(self) -> str:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        (None, 0, ""),
        (7, 7, ""),
        (True, 1, ""),
        (-1, 255, ""),
        (256, 0, ""),
        (10**100, 255, ""),
        ("no data", 1, "no data\n"),
        (_Unreadable(), 1, "(its message cannot be read)\n"),
        (_Interrupting(), 1, "(its message cannot be read)\n"),
    ],
)
def test_the_exit_of_a_program_has_a_code_whatever_it_is_given(
    given: object, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    decided = user_program.code_of(SystemExit(given))
    assert (type(decided), decided) == (int, code)
    assert capsys.readouterr().err == text


def test_a_circle_of_causes_has_an_end() -> None:
    first, second = ValueError(), KeyError()
    first.__cause__, second.__cause__ = second, first
    assert not is_not_spawned(first)
