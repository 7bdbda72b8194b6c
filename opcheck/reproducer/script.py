"""Writes the program of a single call, which needs only torch; pure functions of text."""

import json
import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from opcheck.common import documents
from opcheck.common.names import DTYPES
from opcheck.data.extensions import LIBRARIES
from opcheck.model.records import COMPLEX, ENDLESS, Example, ExampleTensor, Record, Scalar
from opcheck.reproducer.chosen import ChosenFinding

#: The values of floating tensors: some operators take only probabilities or positive definite matrices.
FILLS = ("randn", "rand", "ones", "eye")

_TEMPLATE = documents.read_text(Path(__file__).with_name("program.txt"))
_INDENT = "    "
_WIDTH = 88
#: Operators that draw random numbers, which differ between devices.
_RANDOM = ("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "native_dropout", "normal",
           "rand", "uniform")  # fmt: skip


class Parameter(Record, frozen=True, kw_only=True):
    """A parameter of an operator's schema."""

    name: str
    #: as TorchScript writes it: ``Tensor``, ``List[Optional[Tensor]]``, ``number``
    type: str
    keyword_only: bool = False

    @property
    def tensors(self) -> bool:
        """Return whether the parameter takes a list of tensors."""
        return self.type.startswith(("List[Tensor", "List[Optional[Tensor", "Optional[List[Tensor"))


def write(
    chosen: ChosenFinding, schema: Sequence[Parameter], fill: str, *, expected: Sequence[str], checked: Sequence[str]
) -> str:
    """The program.

    Args:
        chosen: the finding and its calls, which have an example.
        schema: the parameters of the operator, in their order.
        fill: a key of FILLS.
        expected: what happens on the target, a line each.
        checked: what was and was not tried, a line each.
    """
    calls = chosen.calls
    assert calls is not None
    assert calls.example is not None
    return _TEMPLATE.format(
        header="\n".join(_header(chosen, expected, checked)),
        imports="".join(f"import {name}\n" for name in LIBRARIES if name == calls.op.partition("::")[0]),
        body=textwrap.indent("\n".join(_call(calls.op, calls.example, schema, fill)), _INDENT),
        end="\n".join(_end(chosen, calls.op)),
    )


def nbytes(example: Example) -> int:
    """Return the bytes of an example's tensors, and of what a factory such as aten::zeros makes."""
    size = example.arguments.get("size")
    numbers = [n for n in size if isinstance(n, int)] if isinstance(size, tuple) else [0]
    result = min(math.prod(abs(number) for number in numbers), 1 << 63) * DTYPES["float64"].itemsize
    return result + sum(math.prod(tensor.shape) * DTYPES[tensor.dtype].itemsize for tensor in example.inputs)


def _header(chosen: ChosenFinding, expected: Sequence[str], checked: Sequence[str]) -> Iterator[str]:
    report = chosen.report
    variable = "1" if report.target.cpu_fallback else "0"
    finding, calls = chosen.finding, chosen.calls
    op = calls.op if calls else finding.op
    texts = [
        f"{op} on MPS: {finding.rule} of {report.model}",
        f"torch {report.target.torch}, macOS {report.target.macos}, PYTORCH_ENABLE_MPS_FALLBACK={variable}",
        "",
        "Expected there:",
        *(f"  {line}" for line in expected),
        "",
        *checked,
        (
            f"The report was observed on a Mac ({report.tool})."
            if chosen.observed
            else f"Predicted by {report.tool} from the release's own registrations and its op lists "
            f"({report.op_lists.digest}). Nothing was observed on a Mac."
        ),
        "",
        "On a Mac: python repro.py. Anywhere, on the CPU: python repro.py cpu",
    ]
    for text in texts:
        margin = "  " if text.startswith("  ") else ""
        lines = textwrap.wrap(text, _WIDTH, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False)
        yield from (f"# {line}" for line in lines) if lines else ["#"]


def _call(op: str, example: Example, schema: Sequence[Parameter], fill: str) -> Iterator[str]:
    yield "torch.manual_seed(0)"
    arguments: dict[str, list[str]] = {}
    for tensor in example.inputs:
        names = arguments.setdefault(tensor.argument, [])
        name = _variable(tensor.argument, len(names), _is_list(tensor.argument, schema, example))
        names.append(name)
        yield f"{name} = {_tensor(tensor, fill)}"
    texts = {
        name: f"[{', '.join(names)}]" if _is_list(name, schema, example) else names[0]
        for name, names in arguments.items()
    }
    texts |= {name: _value(name, value) for name, value in example.arguments.items()}
    yield from _invocation(op, texts, schema)


def _is_list(name: str, schema: Sequence[Parameter], example: Example) -> bool:
    declared = any(parameter.name == name and parameter.tensors for parameter in schema)
    return declared or sum(tensor.argument == name for tensor in example.inputs) > 1


def _variable(argument: str, index: int, is_list: bool) -> str:  # noqa: FBT001
    name = "x" if argument in {"self", ""} else argument
    return f"{name}_{index}" if is_list else name


def _invocation(op: str, texts: dict[str, str], schema: Sequence[Parameter]) -> Iterator[str]:
    """Write the call by the operator's own name, with positional arguments up to the first gap."""
    namespace, _, name = op.partition("::")
    packet, _, overload = name.partition(".")
    positional: list[str] = []
    rest = dict(texts)
    for parameter in schema:
        if parameter.keyword_only or parameter.name not in rest:
            break
        positional.append(rest.pop(parameter.name))
    arguments = [*positional, *(f"{name}={text}" for name, text in rest.items())]
    function = f"torch.ops.{namespace}.{packet}.{overload or 'default'}"
    line = f"return {function}({', '.join(arguments)})"
    if len(line) + len(_INDENT) <= _WIDTH:
        yield line
    else:
        yield f"return {function}("
        yield from (f"{_INDENT}{argument}," for argument in arguments)
        yield ")"


def _tensor(tensor: ExampleTensor, fill: str) -> str:
    """Write the expression that makes a tensor of that dtype, shape and stride."""
    move = ".to(device)" if tensor.device.startswith("mps") else ""
    if tensor.layout != "strided":
        sparse = f"layout=torch.{tensor.layout}"
        return f"{_fill_tensor(tensor.shape, tensor.dtype, fill)}.to_sparse({sparse}){move}"
    if tensor.stride is None:
        return f"{_fill_tensor(tensor.shape, tensor.dtype, fill)}{move}"
    # The tensor is moved first, because a copy to another device does not keep every stride.
    reach = [(size - 1) * step for size, step in zip(tensor.shape, tensor.stride, strict=True)]
    memory = (1 + sum(reach),) if math.prod(tensor.shape) else (0,)
    strided = f".as_strided({tensor.shape}, {tensor.stride})"
    return f"{_fill_tensor(memory, tensor.dtype, fill)}{move}{strided}"


def _fill_tensor(shape: tuple[int, ...], dtype: str, fill: str) -> str:
    kind = f"dtype=torch.{dtype}"
    if dtype == "bool":
        return f"torch.ones({shape}, {kind})"
    if dtype.startswith(("int", "uint")):
        # An index that is always there; ones where that divides.
        return f"torch.{'ones' if fill == 'ones' else 'zeros'}({shape}, {kind})"
    if dtype.startswith("float8"):
        return f"torch.ones({shape}).to(torch.{dtype})"
    if fill == "eye" and len(shape) > 1:
        return f"torch.eye({shape[-2]}, {shape[-1]}, {kind}).expand({shape}).clone()"
    return f"torch.{'ones' if fill == 'eye' else fill}({shape}, {kind})"


def _value(name: str, value: Scalar | tuple[Scalar, ...]) -> str:
    """Write an argument that is no tensor as a Python expression."""
    if isinstance(value, tuple):
        return f"[{', '.join(_value(name, element) for element in value)}]"
    if not isinstance(value, str):
        return repr(value)
    if value in ENDLESS:
        return f'float("{value}")'
    if COMPLEX.fullmatch(value):
        return f'complex("{value}")'
    if name == "device":
        return "device" if value.startswith("mps") else json.dumps(value)
    is_name = name.endswith("dtype") or name in {"layout", "memory_format"}
    return f"torch.{value}" if is_name and value.isidentifier() else json.dumps(value)


def _end(chosen: ChosenFinding, op: str) -> list[str]:
    """Write the end of the program, which compares a result that should be wrong with the CPU's."""
    drawn = op.partition("::")[2].partition(".")[0].strip("_").startswith(_RANDOM)
    if not chosen.silent or drawn:
        return ["print(call(device))"]
    return [
        'torch.testing.assert_close(call(device), call("cpu"), check_device=False)',
        'print("the same as on the CPU")',
    ]
