"""The text of a program, for each form that a tensor or an argument has."""

from __future__ import annotations

import pytest
import torch

from opcheck.model.records import Example, ExampleTensor
from opcheck.reproducer.script import FILLS, Parameter, _call, nbytes


def tensor(argument: str = "self", **others: object) -> ExampleTensor:
    content: dict[str, object] = {
        "argument": argument,
        "dtype": "float32",
        "shape": (2, 3),
        "stride": None,
        "layout": "strided",
        "device": "mps",
        **others,
    }
    return ExampleTensor(**content)  # type: ignore[arg-type]


def made(item: ExampleTensor, fill: str = "randn") -> torch.Tensor:
    """What the line for a tensor makes, with the CPU as device."""
    lines = list(_call("aten::relu", Example(inputs=(item,), arguments={}), (), fill))
    names: dict[str, object] = {"torch": torch, "device": "cpu"}
    exec("\n".join(lines[:-1]), names)  # noqa: S102  (it was made here)
    result = names["x"]
    assert isinstance(result, torch.Tensor)
    return result


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize(
    "dtype",
    ["bool", "uint8", "int64", "uint16", "float16", "bfloat16", "float32", "float64", "complex64",
     "float8_e4m3fn"],
)  # fmt: skip
def test_each_dtype_can_be_filled(dtype: str, fill: str) -> None:
    result = made(tensor(dtype=dtype), fill)
    assert (str(result.dtype), result.shape) == (f"torch.{dtype}", (2, 3))


@pytest.mark.parametrize(
    ("shape", "stride"), [((2, 3), (1, 2)), ((2, 3), (0, 1)), ((3,), (7,)), ((0, 3), (5, 2)), ((1,), (9,))]
)
def test_strides_are_kept(shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
    result = made(tensor(shape=shape, stride=stride))
    assert (result.shape, result.stride()) == (shape, stride)


@pytest.mark.parametrize("shape", [(), (1,), (2, 0), (4, 3, 3)])
@pytest.mark.parametrize("fill", FILLS)
def test_each_shape_can_be_filled(shape: tuple[int, ...], fill: str) -> None:
    assert made(tensor(shape=shape), fill).shape == shape


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_sparse_tensors_are_sparse(layout: str) -> None:
    assert made(tensor(layout=layout)).layout is getattr(torch, layout)


def invocation(example: Example, *schema: Parameter, op: str = "aten::op.out") -> str:
    return " ".join(line.strip() for line in list(_call(op, example, schema, "randn"))[1:])


def test_arguments_are_written_as_python() -> None:
    example = Example(
        inputs=(),
        arguments={
            "dtype": "float16",
            "device": "mps:0",
            "memory_format": "channels_last",
            "value": "-inf",
            "alpha": "(2+1j)",
            "size": (1, 2),
            "reduction": "mean",
            "bias": None,
            "flag": True,
        },
    )
    assert invocation(example, op="aten::op") == (
        "return torch.ops.aten.op.default( dtype=torch.float16, device=device, "
        'memory_format=torch.channels_last, value=float("-inf"), alpha=complex("(2+1j)"), size=[1, 2], '
        'reduction="mean", bias=None, flag=True, )'
    )


def test_a_list_of_one_tensor_is_a_list_where_the_schema_says_so() -> None:
    first = Example(inputs=(tensor("tensors"),), arguments={"dim": 0})
    schema = (Parameter(name="tensors", type="List[Tensor]"), Parameter(name="dim", type="int"))
    assert invocation(first, *schema).endswith("return torch.ops.aten.op.out([tensors_0], 0)")
    two = Example(inputs=(tensor("tensors"), tensor("tensors")), arguments={})
    assert invocation(two).endswith("op.out(tensors=[tensors_0, tensors_1])")


def test_by_position_as_far_as_there_is_no_gap() -> None:
    example = Example(inputs=(tensor("self"), tensor("other")), arguments={"alpha": 2})
    names = ("self", "weight", "other")
    schema = tuple(Parameter(name=name, type="Tensor") for name in names)
    assert invocation(example, *schema).endswith("op.out(x, other=other, alpha=2)")


def test_what_is_on_the_cpu_stays_there() -> None:
    text = invocation(Example(inputs=(tensor(device="cpu"),), arguments={}))
    assert ".to(device)" not in text


def test_memory_is_counted_in_bytes() -> None:
    assert nbytes(Example(inputs=(tensor(dtype="int64"), tensor()), arguments={})) == 72
    assert nbytes(Example(inputs=(), arguments={"size": (3, 5)})) == 120
