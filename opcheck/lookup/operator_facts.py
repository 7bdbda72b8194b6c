"""Hold the data that answers rest on: registrations, statements and what composites call."""

import functools
from collections.abc import Callable, Iterable

from opcheck.common.memo import cached_method
from opcheck.common.names import DTYPES
from opcheck.common.versions import Target, Version
from opcheck.data import composites
from opcheck.data.composites import CompositeBody
from opcheck.data.kernel_routes import KernelRoute, routes
from opcheck.data.registrations import OpLists, Resolution, data_directory
from opcheck.data.statement_model import EVERY_OPERATOR, Statement

#: Operators whose body takes one of several ways, so that no call is in every sample's calls -> those of a plain call.
#: The other decompositions are for hermitian matrices and for none (matrix_rank_impl and pinv of
#: aten/src/ATen/native/LinearAlgebra.cpp and BatchLinearAlgebra.cpp, torch 1.13 to 2.15).  A transform takes the way of
#: its input's dtype, and pads only for a size that its caller passes (fft_c2c_maybe_out of SpectralOps.cpp).
_PLAIN_CALLS = {
    **dict.fromkeys(("aten::linalg_matrix_rank", "aten::linalg_pinv"), ("aten::_linalg_svd", "aten::linalg_svd")),
    **dict.fromkeys(
        ("aten::fft_fft", "aten::fft_ifft"),
        ("aten::_fft_c2c", "aten::_fft_c2c.out", "aten::_fft_r2c", "aten::_fft_r2c.out", "aten::conj_physical.out"),
    ),
}
#: What a composite calls on a tensor of another dtype than its own: the mask of its zeros, and the counts to repeat by
#: (cumprod_backward of ReduceOps.cpp and repeat_interleave of Repeat.cpp in aten/src/ATen/native, torch 1.13 to 2.15).
INNER_DTYPES = {
    ("aten::cumprod_backward", "aten::bitwise_not"): "bool",
    ("aten::repeat_interleave.self_Tensor", "aten::repeat_interleave.Tensor"): "int64",
}
#: Copies between devices and dtypes.
COPIES = frozenset({"aten::_to_copy", "aten::copy_"})


class OperatorFacts:
    """Looks up the data about operators in one copy of the op lists."""

    def __init__(self, lists: OpLists) -> None:
        self.lists = lists
        self.statements = lists.statements
        self._computed = _has_composites()
        self._classes: dict[tuple[tuple[str, ...], Target], dict[str, str]] = {}

    def composite(self, op: str, line: str) -> bool:
        """Return whether the operators that the overload calls decide its verdict."""
        return self.resolution(op, line).status == "composite"

    @cached_method
    def resolution(self, op: str, line: str) -> Resolution:
        """Return the status that the registrations alone give; a Python name counts as a composite."""
        if not is_python(op):
            return self.lists.resolve(op, line)
        if composites.python_body(op, line) is None:
            return Resolution(status="unknown", kind=None, chain=(op,), value=None)
        return Resolution(status="composite", kind=None, chain=(op,), value="python")

    @cached_method
    def calls(self, op: str, line: str) -> CompositeBody | None:
        """Return what a composite calls on the Mac; None if that was not computed.

        Raises:
            OpListError: the table of what composites call is damaged.
        """
        if not self._computed:
            return None
        if is_python(op):
            return composites.python_body(op, line)
        # A forwarding registration is judged as the overload that it forwards to.
        last = self.resolution(op, line).chain[-1]
        body = composites.body(last, line)
        if body is None:
            return None
        # A body's call of its own overload does not affect the verdict.
        own = {op, last}
        always = tuple(name for name in body.always if name not in own)
        plain = _PLAIN_CALLS.get(op.partition(".")[0], ())
        always += tuple(name for name in body.sometimes if name in plain)
        sometimes = tuple(name for name in body.sometimes if name not in {*own, *plain})
        return body._replace(always=always, sometimes=sometimes)

    @cached_method
    def deciding(self, op: str, line: str) -> tuple[str, ...]:
        """Return the overload and all overloads on which its verdict can rest."""
        return self._follow(op, line, lambda calls: calls.both)

    def usual_statements(self, op: str, line: str) -> tuple[Statement, ...]:
        """Return the statements on the overload and on those that a plain call of it reaches."""
        reached = {s.id for n in self._usual(op, line) for s in self.statements.for_op(n, line)}
        return tuple(each for each in self.statements_on(op, line) if each.id in reached)

    @cached_method
    def route(self, op: str, line: str) -> KernelRoute:
        """Return what computes a plain call of the overload; of a composite, of what it usually calls.

        Raises:
            OpListError: the table of routes is damaged.
        """
        usual = (name for name in self._usual(op, line) if not self.composite(name, line))
        return routes(self.lists).of_operators(tuple(usual), line)

    def _usual(self, op: str, line: str) -> tuple[str, ...]:
        """Return the overload and those that a plain call of it reaches."""

        def usual(calls: CompositeBody) -> tuple[str, ...]:
            if not is_python(op):
                return calls.always or calls.sometimes
            # Python code passes no argument of its caller to the copies that it makes.
            return tuple(name for name in calls.always if name not in COPIES)

        return self._follow(op, line, usual)

    def _follow(self, op: str, line: str, calls_of: Callable[[CompositeBody], tuple[str, ...]]) -> tuple[str, ...]:
        """Return the overload, and in turn those that it refers to or that ``calls_of`` selects."""
        seen: dict[str, None] = {}
        left = [op]
        while left:
            name = left.pop(0)
            if name in seen:
                continue
            seen[name] = None
            left += self.resolution(name, line).chain[1:]
            calls = self.calls(name, line) if self.composite(name, line) else None
            left += calls_of(calls) if calls else ()
        return tuple(seen)

    @cached_method
    def statements_on(self, op: str, line: str) -> tuple[Statement, ...]:
        """Return the statements on the overload or on another that decides for it, without those on every operator.

        A statement on dtypes is left out where the composite calls its operator on a tensor of another dtype.
        """
        inner = [name for caller, name in INNER_DTYPES if caller == op]
        other = [each for name in inner for each in self._of_overload(name, line, on_kernels=False) if each.dtypes]
        statements = self._statements(self.deciding(op, line), line, on_kernels=False)
        return tuple(each for each in statements if each not in other)

    def _statements(self, names: Iterable[str], line: str, *, on_kernels: bool) -> tuple[Statement, ...]:
        """Return the statements on these overloads by id: those on every kernel, or those on operators alone."""
        found = (self._of_overload(name, line, on_kernels=on_kernels) for name in names)
        statements = {each.id: each for statements in found for each in statements}
        return tuple(statements[name] for name in sorted(statements))

    @cached_method
    def _of_overload(self, op: str, line: str, *, on_kernels: bool) -> tuple[Statement, ...]:
        statements = (each for each in self.statements.for_op(op, line) if each.on_every_kernel is on_kernels)
        return tuple(each for each in statements if on_kernels or EVERY_OPERATOR not in each.ops)

    def everywhere(self, line: str) -> tuple[Statement, ...]:
        """Return the statements on every operator; they are about making a tensor."""
        return self.statements.for_op(EVERY_OPERATOR, line)

    @cached_method
    def on_kernels(self, op: str, line: str) -> tuple[Statement, ...]:
        """Return the statements on every kernel that apply to the overload or to another that decides for it."""
        kernels = [name for name in self.deciding(op, line) if not self.composite(name, line)]
        return self._statements(kernels, line, on_kernels=True)

    def facts(self, op: str, line: str) -> object:
        """Return all data on which a verdict about the overload rests; releases with equal data judge alike."""
        deciding = tuple((n, self.resolution(n, line).value) for n in self.deciding(op, line))
        general = (*self.everywhere(line), *self.on_kernels(op, line))
        return deciding, _ids(self.statements_on(op, line)), _ids(general)

    def alike(self, op: str, target: Target, dtype: str) -> str:
        """Return the first dtype that no statement distinguishes from this dtype, on this target."""
        line = str(target.torch)
        about = (*self.statements_on(op, line), *self.on_kernels(op, line))
        key = (_ids(about), target)
        if key not in self._classes:
            everywhere = self.everywhere(line)
            here = [each for each in (*about, *everywhere) if target.macos in each.macos]
            holding = {(tests_dtypes(each.condition), each.dtypes) for each in here}
            # A condition that tests dtypes may distinguish any two of them.
            tests = any(tests for tests, _ in holding)
            first: dict[object, str] = {}
            self._classes[key] = {
                name: name if tests else first.setdefault(tuple(name in dtypes for _, dtypes in holding), name)
                for name in DTYPES
            }
        return self._classes[key][dtype]

    def systems(self, op: str, line: str) -> frozenset[Version]:
        """Return the macOS versions where a statement on the overload, or on all, begins or ends."""
        specific = (*self.statements_on(op, line), *self.on_kernels(op, line))
        spans = (statement.macos for statement in (*specific, *self.everywhere(line)))
        return frozenset(b for span in spans for b in (span.since, span.until) if b is not None)


def is_python(op: str) -> bool:
    """Return whether a name is that of Python code, such as ``nn.LSTM``, and not of an operator."""
    return "::" not in op


def _ids(statements: Iterable[Statement]) -> tuple[str, ...]:
    return tuple(statement.id for statement in statements)


#: Words in a condition that may test a dtype.
_OF_DTYPES = ("dtype", "is_complex", "is_floating")


@functools.cache
def tests_dtypes(condition: str) -> bool:
    """Return whether a condition may test a dtype."""
    return any(word in condition for word in _OF_DTYPES)


def api_overloads(name: str) -> tuple[str, ...]:
    """Return the overloads that a Python function calls; empty if that was not computed.

    Raises:
        OpListError: the table of what composites call is damaged.
    """
    return composites.api_names(name) if _has_composites() else ()


def _has_composites() -> bool:
    """Return whether the table of what composites call exists; without it nothing is known of them."""
    return (data_directory() / composites.SAMPLED.name).is_file()
