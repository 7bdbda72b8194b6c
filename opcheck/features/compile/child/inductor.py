"""Runs Inductor's graphs for mps on the CPU: its own wrapper, our kernels, and the CPU's operators between them."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

import torch

from opcheck.common.replacing import replaced
from opcheck.features.compile.child.kernels import compile_kernels
from opcheck.tracing.torch_private import compilation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_MPS = re.compile(r"(?P<quote>['\"])mps(?P<index>:\d+)?(?P=quote)")
#: What an operator gives back on the CPU may have other strides than on mps; the kernels after it count on those.
_RESULT = re.compile(r"^(?P<indent>\s*)assert_size_stride\((?P<name>buf\d+), ", re.MULTILINE)
#: Up to 2.11 each kernel is compiled apart; so is that of a template, flex_attention's, in later releases.
_ALONE = re.compile(r"= compile_mps_shader\(")
_ATTENTION = "torch.ops.aten._scaled_dot_product_attention_math_for_mps.default"
_ON_CPU = (
    (_MPS, "'cpu'"),
    (_ALONE, "= opcheck_compiled("),
    (_RESULT, r"\g<indent>\g<name> = opcheck_strided(\g<name>, "),
    (
        re.compile(re.escape(_ATTENTION)),
        "torch.ops.aten._scaled_dot_product_attention_math.default",
    ),
)
_PRELUDE = (
    "from opcheck.features.compile.child.inductor import restride as opcheck_strided\n"
    "from opcheck.features.compile.child.kernels import compile_kernel as opcheck_compiled\n"
)


@contextlib.contextmanager
def on_cpu() -> Iterator[None]:
    """Make what Inductor compiles for mps inside the block callable with CPU tensors."""
    step = compilation.load_wrapper()
    load = step.value()

    def load_rewritten(self: Any, wrapper: Any) -> Any:
        wrapper.value = _PRELUDE + _rewritten(wrapper.value)
        return load(self, wrapper)

    changes: list[tuple[Any, str, Any]] = [(*step, load_rewritten)]
    if shaders := compilation.compile_shaders():
        changes.append((*shaders, compile_kernels))
    with replaced(changes):
        yield


def _rewritten(wrapper: str) -> str:
    for pattern, replacement in _ON_CPU:
        wrapper = pattern.sub(replacement, wrapper)
    return wrapper


def restride(value: Any, size: Sequence[int], stride: Sequence[int], *_: Any) -> Any:
    """Return the tensor in the strides that Inductor expects of mps."""
    if not isinstance(value, torch.Tensor) or value.stride() == tuple(stride):
        return value
    return torch.empty_strided(size, stride, dtype=value.dtype).copy_(value)


def callable_on_cpu(compiled: Any, gm: torch.fx.GraphModule) -> Callable[..., Any]:
    """Make a function of the graph's own inputs: the constants that ``on_mps`` lifted are added."""
    constants = [
        value
        for node in gm.graph.find_nodes(op="get_attr")
        if isinstance(value := getattr(gm, str(node.target), None), torch.Tensor)
    ]

    def run(*args: Any) -> Any:
        return compiled([*args, *constants])

    return run
