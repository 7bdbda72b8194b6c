"""Takes the name of a kernel apart: the operation, how it walks through memory, its dtypes; and its family.

PyTorch registers a template once a dtype (``REGISTER_UNARY_OP`` of
aten/src/c10/metal/indexing.h and its kin): ``add_strided_cast_float_half`` is ``add``, strided,
with a cast, output float, input half.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from opcheck.common.globs import fits
from opcheck.common.grouping import group_values
from opcheck.common.picking import pick
from opcheck.data.strict_yaml import read_as
from opcheck.kernels.kernel_records import KernelOutcome, Task, Verdict

_DTYPES = read_as(Path(__file__).with_name("dtypes.yaml"), tuple[tuple[str, str, int], ...])
#: A word of a kernel's name -> its dtype; Metal has float2 for complex64.
WORDS = {**{word: dtype for word, dtype, _ in _DTYPES}, **{name: name for name in ("float16", "bfloat16", "float32")}}
#: The numbers of the dtypes in c10/core/ScalarType.h.
SCALAR_TYPES = {"float8_e4m3fn": 24, **{dtype: number for _, dtype, number in _DTYPES}}
#: Words of a name that begin the description of how the kernel walks through memory.
_WALKS = ("dense", "strided", "inner")
#: Words that may follow; `ilp4` is several elements a thread.
_MORE = re.compile(r"dense|strided|inner|contiguous|scalar|lhs|rhs|broadcast|cast|castout|ilp\d*")
#: A dtype that is several words.
_FLOAT8 = "float8_e4m3fn"
_SHORT = "float8"


class Named(msgspec.Struct, frozen=True):
    """A kernel's name, taken apart.

    ``operation`` is ``add_alpha``, ``form`` is ``dense_scalar``, ``types`` are Metal's names.
    """

    operation: str
    form: str
    types: tuple[str, ...]
    params: str = ""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The types as torch calls them."""
        return tuple(WORDS.get(word, word) for word in self.types)


def shorten(name: str) -> str:
    """Return a kernel's name with one word for each dtype."""
    return name.replace(_FLOAT8, _SHORT)


def parse(name: str) -> Named:
    """Take a kernel's name apart; one without a form has its first words as the operation."""
    words = shorten(name).split("_")
    start = next((at for at, word in enumerate(words) if at and word in _WALKS), None)
    if start is None:
        at = len(words)
        while at > 1 and words[at - 1] in WORDS:
            at -= 1
        return Named("_".join(words[:at]), "", tuple(words[at:]))
    end = start
    while end < len(words) and _MORE.fullmatch(words[end]):
        end += 1
    rest = words[end:]
    types = tuple(_FLOAT8 if word == _SHORT else word for word in rest if not word.endswith("Params"))
    params = next((word for word in rest if word.endswith("Params")), "")
    return Named("_".join(words[:start]), "_".join(words[start:end]), types, params)


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """Return the kernels that a pattern selects, sorted; all without a pattern.

    Args:
        names: of kernels.
        pattern: a kernel's name with ``*`` and ``?``, or an operation, which selects all of its kernels.
    """

    def is_selected(name: str) -> bool:
        return fits(name, pattern) or (pattern in name and parse(name).operation == pattern)

    return sorted(name for name in names if not pattern or is_selected(name))


#: The first that matches the beginning of a kernel's name is its family.
_PATTERNS = tuple(
    (re.compile(pattern), family)
    for family, pattern in read_as(Path(__file__).with_name("families.yaml"), dict[str, str]).items()
)
_TERNARY = frozenset(["addcmul", "addcdiv", "lerp", "clamp", "where"])
#: The families whose results each depend on a single place of the operands.
POINTWISE = ("unary", "binary", "ternary")


def family_of(name: str, forms: Iterable[str]) -> str:
    """Return the family of a kernel.

    Args:
        name: its name.
        forms: those of all kernels of its operation.
    """
    for pattern, family in _PATTERNS:
        if pattern.match(name):
            return family
    operation = parse(name).operation
    forms = tuple(forms)
    if operation in _TERNARY:
        return "ternary"
    if not any(forms):
        return "other"
    return "binary" if any("broadcast" in form for form in forms) else "unary"


def tasks(kernels: Iterable[str]) -> tuple[Task, ...]:
    """Return the kernels of a release by operation."""
    tasks = []
    for operation, members in group_values((parse(name).operation, name) for name in sorted(kernels)).items():
        forms = [parse(name).form for name in members]
        families = group_values((family_of(name, forms), name) for name in members)
        tasks += [Task(family=name, operation=operation, kernels=tuple(listed)) for name, listed in families.items()]
    return tuple(tasks)


def outcome_of(task: Task, name: str, verdict: Verdict, reason: str, **judged: Any) -> KernelOutcome:
    """Return the outcome of a kernel of a task."""
    about = pick(task, "family", "operation") | judged
    return KernelOutcome(kernel=name, dtypes=parse(name).dtypes, verdict=verdict, reason=reason, **about)
