"""Dtypes that MPS has not: float64, complex128, and on older targets complex numbers and float8."""

import ast
import bisect
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from opcheck.common.versions import Version
from opcheck.source.call_tables import read_lists, read_table, read_words
from opcheck.source.program import Binding, Function, walk
from opcheck.source.project import defaults
from opcheck.source.rule import Hit, Scanned, argument, chain, hit, method, rule, torch_alias
from opcheck.source.words import is_cuda, last

#: A dtype as its rank (bool, integer, float, complex) and its bits; a sign is of no consequence here.
_Dtype = tuple[int, int]
_BOOL, _INT64, FLOAT64, COMPLEX128 = (0, 8), (1, 64), (2, 64), (3, 128)
_FLOAT32, _COMPLEX64 = (2, 32), (3, 64)
#: The spellings of dtypes, the same in NumPy and in torch but for ``int``, ``float`` and ``complex``.
_SPELLED: dict[str, _Dtype] = {
    name: (int(rank), int(bits)) for name, key in read_lists("dtypes").items() for rank, bits in [key.split()]
}
_BUILTINS = {"bool": _BOOL, "int": _INT64, "float": FLOAT64, "complex": COMPLEX128}
_OF_TORCH = {"int": (1, 32), "float": _FLOAT32, "char": (1, 8)}
#: The functions and methods of NumPy, by the dtype of their result.
_RESULTS = read_lists("results")
#: The functions of other libraries, by the dtype of their array.
_ELSEWHERE = read_lists("results_elsewhere")
#: Which arguments decide.
_DECIDING = {rule: slice(*map(int, ends.split())) for rule, ends in read_lists("deciding").items()}
_DTYPE_POSITION = {name: int(position) for name, position in read_lists("dtype_positions").items()}
#: What gives several values, by the dtype of each.
_SEVERAL = read_lists("results_several")
#: Without an axis they give a scalar.
_REDUCES = read_words("reduces", "numpy")
_SCALERS = re.compile(
    r"sklearn\.(?:preprocessing\.\w+(?:Scaler|Normalizer|Transformer)|decomposition\.(?:PCA|TruncatedSVD|FastICA))"
)
#: What a model of scikit-learn has after it was fitted, in the floats of the array that it was fitted to.
_FITTED = {"cluster_centers_", "components_", "singular_values_", "explained_variance_"}
_ADDS = {"append", "extend", "insert"}
_CONSTANTS = {f"{module}.{name}" for module in ("numpy", "math") for name in ("pi", "e", "inf", "nan")}
_GENERATORS = {"numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.Generator"}
#: The functions of torch that keep the dtype of an array, those that join several, and those of float32.
TENSORS = {"torch.tensor", "torch.as_tensor", "torch.asarray"}
_MADE = {*TENSORS, "torch.from_numpy"} | {f"torch.{name}" for name in ("stack", "cat", "concat", "hstack", "vstack")}
_SINGLE = {f"torch.{name}" for name in ("Tensor", "FloatTensor", "rand", "randn", "ones", "zeros", "eye")}
#: The methods of a tensor that cast it, and those that keep its dtype.
_CAST_METHODS, _KEEPS = read_words("casts", "numpy"), read_words("keeps", "numpy")
#: A longer chain of values is not followed; each takes about six of Python's 1000 frames.
_DEEPEST = 60
#: Of a name with more values, none is certain.
_MOST = 8


class ArrayKind(NamedTuple):
    """What an expression is: ``python`` (numbers, and lists of them), ``numpy``, ``torch`` or a ``generator``."""

    family: str
    dtype: _Dtype = _BOOL
    is_scalar: bool = False


class Dtypes:
    """The kinds of the expressions of a file; each is found once."""

    def __init__(self, scanned: Scanned) -> None:
        self._scanned = scanned
        self._program = scanned.program
        self._kinds: dict[ast.AST, ArrayKind | None] = {}
        self._positions: dict[int, list[tuple[int, int]]] = {}
        self._depth = 0

    def kind(self, node: ast.AST | None) -> ArrayKind | None:
        """Return the kind of an expression; None where it is not certain."""
        if node is None or node in self._kinds or self._depth >= _DEEPEST:
            return None if node is None else self._kinds.get(node)
        self._kinds[node] = None  # of a value that depends on itself
        self._depth += 1
        self._kinds[node] = self._find(node)
        self._depth -= 1
        return self._kinds[node]

    def _find(self, node: ast.AST) -> ArrayKind | None:
        kind: ArrayKind | None = None
        match node:
            case ast.Constant(value=bool() | int() | float() | complex()):
                kind = ArrayKind("python", _BUILTINS[type(node.value).__name__], is_scalar=True)
            case ast.List(elts=[]):
                kind = _join(map(self.kind, self._list_appended(node)), "list")
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                kind = _join(map(self.kind, parts), "list")
            case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part):
                kind = _join([self.kind(part)], "list")
            case ast.UnaryOp(operand=operand, op=ast.USub() | ast.UAdd()):
                kind = self.kind(operand)
            case ast.BinOp(left=left, right=right):
                kind = self._operation(left, right, divides=isinstance(node.op, ast.Div))
            case ast.Compare(left=value):
                kind = self._array(value)
                kind = kind and kind._replace(dtype=_BOOL)
            case ast.IfExp(body=first, orelse=second):
                kind = _agree([self.kind(first), self.kind(second)])
            case _:
                kind = self._find_named(node)
        return kind

    def _find_named(self, node: ast.AST) -> ArrayKind | None:
        kind: ArrayKind | None = None
        scanned = self._scanned
        match node:
            case ast.Name(id=name):
                kind = self._name(node, name)
            case ast.AugAssign(target=ast.Name(id=name)):
                held = self._name(node, name, node.target)
                kind = None if held is None or held.family == "python" or held.is_scalar else held
            case ast.Assign(targets=[ast.Tuple()], value=value):
                kind = self._array(value)
            case ast.Subscript(value=ast.Name() as table, slice=ast.Constant(value=str() as key)):
                kind = self.kind(self._entry(table, key))
            case ast.Subscript(value=ast.Attribute() as grid, slice=index) if (
                scanned.dotted_name(grid) == "numpy.mgrid"
            ):
                slices = (part for part in ast.walk(index) if isinstance(part, ast.Slice))
                # A complex step is a number of points.
                joined = _join(self.kind(each) for part in slices for each in ast.iter_child_nodes(part))
                kind = joined and ArrayKind("numpy", FLOAT64 if joined.dtype[0] >= FLOAT64[0] else _INT64)
            case ast.Subscript(value=value, slice=index):
                # With an index and not a slice it may be a scalar.
                is_part = isinstance(index, (ast.Slice, ast.Tuple))
                kind = self._array(value)
                kind = kind and kind._replace(is_scalar=kind.is_scalar or not is_part)
            case ast.Attribute():
                kind = self._attribute(node)
            case ast.Call():
                kind = self._call(node)
        return kind

    def _entry(self, table: ast.Name, key: str) -> ast.expr | None:
        """The value of a key in a dict that the file only reads."""
        value, program = self._program.only_value(table), self._program
        uses = (use for use in program.uses.get(table.id, ()) if use is not table)
        is_read = all(isinstance(getattr(program.parent(use), "ctx", None), ast.Load | None) for use in uses)
        entries = zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) and is_read else ()
        return next((each for name, each in entries if isinstance(name, ast.Constant) and name.value == key), None)

    def _array(self, node: ast.AST) -> ArrayKind | None:
        """The kind of an array or a tensor, without regard to its dimensions."""
        kind = self.kind(node)
        is_array = kind is not None and kind.family in {"numpy", "torch"}
        return kind._replace(is_scalar=False) if kind and is_array else None

    # -- names -----------------------------------------------------------------------------------

    def _name(self, node: ast.AST, name: str, target: ast.expr | None = None) -> ArrayKind | None:
        """The kind at the last binding above that the program passes for certain, if those between agree."""
        program = self._program
        bindings = program.bound_in(program.scope(node), name)
        if not bindings or program.scope(bindings[0].node) is not program.scope(node):
            return _agree([self._find_bound(each, name) for each in bindings[: _MOST + 1]])
        if id(bindings) not in self._positions:
            self._positions[id(bindings)] = [
                _position(program.parent(each.node) if _is_inside(each) else each.node) for each in bindings
            ]
        end = bisect.bisect_left(self._positions[id(bindings)], _start(target or node))
        blocks = {(place.parent, place.field) for _, place in program.ancestors(node)}
        kinds: list[ArrayKind | None] = []
        for binding in reversed(bindings[max(0, end - _MOST) : end]):
            place = program.place(binding.node)
            kinds.append(self._find_bound(binding, name))
            is_certain = place is None or (place.parent, place.field) in blocks
            if is_certain or _is_inside(binding) or kinds[-1] is None:
                break
        return _agree(kinds)

    def _find_bound(self, binding: Binding, name: str) -> ArrayKind | None:
        match binding.node:
            case ast.For(target=ast.Name(), iter=values) | ast.comprehension(target=ast.Name(), iter=values):
                return self._array(values)
            case ast.arg():
                return self._parameter(binding.node, name)
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Call() as call):
                full = self._scanned.dotted_name(call.func)
                position = [last(target) for target in targets].index(name) if name in map(last, targets) else 0
                if full in _SEVERAL and len(targets) == 2:
                    asked = argument(call, None, "dtype")
                    dtype = _SPELLED[_SEVERAL[full].split()[position]]
                    return ArrayKind("numpy", dtype) if asked is None else self._cast("numpy", asked)
                if full == "sklearn.model_selection.train_test_split" and position // 2 < len(call.args):
                    return self._array(call.args[position // 2])
        return self.kind(binding.value or binding.node)

    def _list_appended(self, node: ast.AST) -> list[ast.expr | None]:
        """What the function appends to a list that is empty at first."""
        parent, program = self._program.parent(node), self._program
        name = last(parent.targets[0]) if isinstance(parent, ast.Assign) else ""
        names = (use for use in program.uses.get(name, ()) if isinstance(use, ast.Name))
        uses = (use for use in names if program.scope(use) is program.scope(node))
        calls = ((method(call), call) for use in uses if (call := program.parent(program.parent(use) or use)))
        parts = [(called, call.args[:1]) for called, call in calls if isinstance(call, ast.Call) and called]
        return [args[0] if called == "append" and args else None for called, args in parts if called in _ADDS]

    def _parameter(self, node: ast.arg, name: str) -> ArrayKind | None:
        """The kind by the annotation of a parameter, or by all uses of its function."""
        match node.annotation:
            case ast.Subscript(value=value, slice=index) if last(value) == "NDArray":
                return self._cast("numpy", index)
        return _agree([self.kind(value) for value in self._arguments(node, name)] or [None])

    def _arguments(self, node: ast.arg, name: str) -> list[ast.expr | None]:
        """What the calls of a function of the file give to a parameter, or its default; empty if it has other uses."""
        function = self._program.scope(node)
        if not isinstance(function, Function):
            return []
        parameters = [*function.args.posonlyargs, *function.args.args]
        by_parameter = {parameter: value for _, parameter, value in defaults(function)}
        uses = self._program.uses.get(function.name, [])
        if node not in parameters or len(uses) > _MOST or function.decorator_list:
            return []
        values: list[ast.expr | None] = []
        for use in uses:
            call = self._program.parent(use) if isinstance(use, ast.Name) else None
            if not isinstance(call, ast.Call) or call.func is not use:
                return []
            values.append(argument(call, parameters.index(node), name) or by_parameter.get(name))
        return values

    def _find_returned(self, function: Function) -> ArrayKind | None:
        """The kind that all returns of a function have."""
        parts = (ast.Return, ast.Yield, ast.YieldFrom)
        own = [part for part in walk(function) if isinstance(part, parts) and self._program.scope(part) is function]
        is_plain = all(isinstance(part, ast.Return) for part in own) and not function.decorator_list
        return _agree([self.kind(part.value) for part in own[: _MOST + 1]]) if is_plain else None

    # -- operations ------------------------------------------------------------------------------

    def _operation(self, left: ast.expr, right: ast.expr, *, divides: bool) -> ArrayKind | None:
        first, second = self.kind(left), self.kind(right)
        if first and second:
            joined = _join([first, second])
            is_whole = joined is not None and joined.dtype[0] < FLOAT64[0]
            # No division of NumPy's integers gives fewer bits than 64.
            dtype = _FLOAT32 if joined and joined.family == "torch" else FLOAT64
            return joined._replace(dtype=dtype) if joined and divides and is_whole else joined
        # With any other value, which may be complex, an array of float64 gets no narrower.
        kind = first or second
        is_wide = kind is not None and kind.family == "numpy" and kind.dtype == FLOAT64
        return kind if is_wide and kind and not kind.is_scalar else None

    def _attribute(self, node: ast.Attribute) -> ArrayKind | None:
        if full := self._scanned.dotted_name(node):
            return ArrayKind("python", FLOAT64, is_scalar=True) if full in _CONSTANTS else None
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            bindings = self._program.bindings(node)[: _MOST + 1]
            return _agree([self.kind(binding.value) for binding in bindings])
        if node.attr in _FITTED:
            return self._find_fitted(node.value)
        return self._array(node.value) if node.attr in {"T", "mT", "data", "values"} else None

    def _find_fitted(self, model: ast.expr) -> ArrayKind | None:
        """The kind of the floats of a model of scikit-learn: those that it was fitted to."""
        program, value = self._program, self._program.only_value(model)
        calls = [value, *(program.parent(program.parent(use) or use) for use in program.uses.get(last(model), ()))]
        fits = [call for call in calls if isinstance(call, ast.Call) and method(call).startswith("fit") and call.args]
        maker: ast.AST | None = value
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value in fits:
            maker = value.func.value  # KMeans(2).fit(x) gives the model itself
        is_of_sklearn = isinstance(maker, ast.Call) and self._scanned.dotted_name(maker.func).startswith("sklearn.")
        kind = _agree([self._array(call.args[0]) for call in fits]) if is_of_sklearn else None
        return kind if kind and kind.dtype[0] == FLOAT64[0] else None

    def _call(self, node: ast.Call) -> ArrayKind | None:
        name = self._scanned.dotted_name(node.func)
        if name in _GENERATORS or name in _ELSEWHERE:
            return ArrayKind("numpy", _SPELLED[_ELSEWHERE[name]]) if name in _ELSEWHERE else ArrayKind("generator")
        if name.startswith("numpy."):
            return self._numpy(node, name.rpartition(".")[2], node.args)
        if name.startswith("torch."):
            return self._torch(node, name)
        match node.func:
            case ast.Attribute(value=value, attr=method) if not name:
                return self._method(node, value, method)
            case ast.Name(id=called):
                bindings = self._program.bindings(node.func)
                if not bindings and called in {"float", "int"}:
                    return ArrayKind("python", _BUILTINS[called], is_scalar=True)
                if not bindings and called in {"list", "range"} and node.args:
                    return ArrayKind("python", _INT64) if called == "range" else self.kind(node.args[0])
                bound = self._program.only_binding(node.func)
                if bound and isinstance(bound.node, ast.FunctionDef):
                    return self._find_returned(bound.node)
        return None

    def _numpy(self, node: ast.Call, name: str, values: list[ast.expr]) -> ArrayKind | None:
        """A function of NumPy, or a method with its object as the first value."""
        asked = argument(node, _DTYPE_POSITION.get(name), "dtype")
        rule = _RESULTS.get(name, "")
        if asked is not None:
            return self._cast("numpy", asked)
        if rule in {"float64", "int64"}:
            return ArrayKind("numpy", _SPELLED[rule], is_scalar=not (node.args or node.keywords))
        kind = _join([self.kind(value) for value in values[_DECIDING.get(rule, slice(1))]])
        if kind is None or kind.family not in {"python", "numpy"} or not (rule or name in _SPELLED):
            return None
        dtype, whole = kind.dtype, kind.dtype[0] < FLOAT64[0]
        if not rule:  # numpy.float32(x)
            dtype = _SPELLED[name]
        elif rule == "complex":
            dtype = _COMPLEX64 if dtype == _FLOAT32 else COMPLEX128
        elif whole and rule in {"sum", "mean"}:
            dtype = _INT64 if rule == "sum" else FLOAT64
        elif whole and rule in {"float", "floats"}:
            dtype = (FLOAT64[0], min(64, 2 * kind.dtype[1]) if rule == "float" else 64)
        is_method = values is not node.args
        has_axis = len(node.args) + is_method > 1 or bool(node.keywords)
        # The elements of ``choice`` and the like count as arrays, which promote alike.
        keeps = kind.is_scalar and name not in {"full", "arange"}
        return ArrayKind("numpy", dtype, is_scalar=keeps or (name in _REDUCES and not has_axis))

    def _torch(self, node: ast.Call, name: str) -> ArrayKind | None:
        asked = argument(node, None, "dtype")
        if asked is not None:
            return self._cast("torch", asked)
        kind = self.kind(node.args[0]) if node.args else None
        if name in _SINGLE:
            return ArrayKind("torch", _FLOAT32)
        if name in _MADE and kind is not None and kind.family != "generator":
            narrow = {FLOAT64: _FLOAT32, COMPLEX128: _COMPLEX64} if kind.family == "python" else {}
            return ArrayKind("torch", narrow.get(kind.dtype, kind.dtype))
        keeps = kind is not None and kind.family == "torch" and name.rpartition(".")[2] in _KEEPS
        return kind if keeps else None

    def _method(self, node: ast.Call, value: ast.expr, name: str) -> ArrayKind | None:
        source = self._program.only_value(value) or value
        if isinstance(source, ast.Call):
            maker = self._scanned.dotted_name(source.func)
            if name in {"fit_transform", "transform"} and _SCALERS.fullmatch(maker) and node.args:
                return self._array(node.args[0])
            if (dtype := _ELSEWHERE.get(f"{maker}.{name}")) and not argument(source, None, "dtype"):
                return ArrayKind("numpy", _SPELLED[dtype])
        kind = self.kind(value)
        asked = argument(node, 0, "dtype")
        if name in {"astype", "to_numpy"} and asked is not None and (kind is None or kind.family == "numpy"):
            return self._cast("numpy", asked)
        if kind is None or kind.family == "python":
            return None
        if name in {"item", "tolist"}:
            return ArrayKind("python", kind.dtype, is_scalar=name == "item")
        if kind.family == "torch":
            return self._tensor(node, kind, name)
        return self._numpy(node, name, node.args if kind.family == "generator" else [value])

    def _tensor(self, node: ast.Call, kind: ArrayKind, name: str) -> ArrayKind | None:
        """A method of a tensor."""
        if name in _CAST_METHODS:
            return ArrayKind("torch", _OF_TORCH.get(name) or _SPELLED[name])
        if name == "numpy":
            return kind._replace(family="numpy")
        if name in {"to", "type"}:
            arguments = [*node.args, *(word.value for word in node.keywords if word.arg == "dtype")]
            dtype = next((dtype for part in arguments if (dtype := self.dtype(part))), None)
            if dtype:
                return ArrayKind("torch", dtype)
            is_one = name == "to" and len(arguments) <= len(node.args) <= 1
            devices = (each for each in arguments if may_be_device(each) and not self.kind(each))
            return kind if is_one and len([*devices]) == len(arguments) else None
        asks = any(word.arg == "dtype" for word in node.keywords)
        return kind if name in _KEEPS and not asks else None

    def _cast(self, family: str, asked: ast.expr) -> ArrayKind | None:
        dtype = self.dtype(asked)
        return ArrayKind(family, dtype) if dtype else None

    def dtype(self, node: ast.expr) -> _Dtype | None:
        """Return the dtype that an expression names; None where that is not certain."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.lstrip("<=|")
            return _SPELLED.get(name) or _BUILTINS.get(name)
        module, _, name = self._scanned.dotted_name(node).partition(".")
        if module in {"numpy", "torch"}:
            return (_OF_TORCH.get(name) if module == "torch" else None) or _SPELLED.get(name)
        if isinstance(node, ast.Name):
            bindings = self._program.bindings(node)
            value = self._program.only_value(node)
            if isinstance(value, (ast.Attribute, ast.Constant)):
                return self.dtype(value)
            if len(bindings) == 1 and isinstance(bindings[0].node, ast.arg):
                dtypes = {self.dtype(each) if each else None for each in self._arguments(bindings[0].node, node.id)}
                return dtypes.pop() if len(dtypes) == 1 else None
            return None if bindings else _BUILTINS.get(node.id)
        return None


def may_be_device(node: ast.expr) -> bool:
    """Return whether an expression is a device by its form or its name, and not a dtype or a tensor."""
    return isinstance(node, (ast.Constant, ast.Call)) or "dev" in last(node).lower()


def _is_inside(binding: Binding) -> bool:
    """Return whether a comprehension binds the name, which it uses before."""
    return isinstance(binding.node, ast.comprehension)


def _start(node: ast.AST | None) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _position(node: ast.AST | None) -> tuple[int, int]:
    """Where a binding takes effect: the names in an assigned value are bound above it."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return node.end_lineno or node.lineno, node.end_col_offset or 0
    return _start(node)


def _agree(kinds: list[ArrayKind | None]) -> ArrayKind | None:
    return kinds[0] if len(kinds) <= _MOST and len(set(kinds)) == 1 else None


def _join(parts: Iterable[ArrayKind | None], family: str = "") -> ArrayKind | None:
    """The kind of an operation of several values, or of a list of them."""
    joined: ArrayKind | None = None
    for part in parts:
        if part is None or part.family == "generator":
            return None
        joined = part if joined is None else _promote(joined, part)
    return joined._replace(is_scalar=False) if joined and family == "list" else joined


def _promote(first: ArrayKind, second: ArrayKind) -> ArrayKind:
    families = {first.family, second.family}
    family = next(name for name in ("torch", "numpy", "python") if name in families)
    # Python's numbers, and those of NumPy with a tensor, change the rank of a dtype and not its bits.
    foreign = [each.family != family for each in (first, second)]
    weak = [
        is_foreign and (each.family == "python" or each.is_scalar)
        for each, is_foreign in zip((first, second), foreign, strict=True)
    ]
    rank = max(first.dtype[0], second.dtype[0])
    bits = 0
    for each, is_weak in zip((first, second), weak, strict=True):
        low, own = each.dtype
        if low == rank:
            bits = max(bits, 0 if is_weak else own)
        elif family != "torch" and not is_weak:
            # The floats that represent all integers of 16 bits have 32; a complex number is two floats.
            is_float_weak = all(one for kind, one in zip((first, second), weak, strict=True) if kind.dtype[0] == rank)
            if low < FLOAT64[0] < rank + 1:
                own = 64 if is_float_weak else min(64, 2 * own)
            bits = max(bits, 2 * own if rank == COMPLEX128[0] else own)
    default = {0: 8, 1: 64, 2: 32 if family == "torch" else 64, 3: 64 if family == "torch" else 128}
    scalar = first.is_scalar and second.is_scalar
    return ArrayKind(family, (rank, bits or default[rank]), is_scalar=scalar)


# -- dtypes that MPS has not: float64, complex128, and on older targets complex numbers and float8 --

# -- OC210: float64 or complex128 of a tensor, or from an array of NumPy ----------------------------

_DTYPES = read_table("wide_dtypes")
_WIDE = {FLOAT64: "float64", COMPLEX128: "complex128"}
_TEXTS = {"torch.DoubleTensor": "float64", "torch.FloatTensor": ""}
_METHODS = {"double": "float64", "cdouble": "complex128"}
#: These give a value on the CPU, and what follows them stays there.
_TO_CPU = {"cpu", "numpy"}
#: They make a tensor on the CPU where no device is given.
_MAKES = read_words("makes_tensors")


@rule("OC210", calls={*_METHODS, "DoubleTensor", "to", "type", "dtype", "cuda", "device"})
def find_wide_dtypes(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``.double()``, ``.to(torch.float64)``, ``dtype=torch.float64`` and the like."""
    dtype = asked_dtype(node, scanned)
    if not dtype:
        yield from _from_numpy(node, scanned)
        return
    if _on_cpu(node, scanned):
        return
    name = scanned.dotted_name(node.func)
    is_creation = name.startswith("torch.") and name.rpartition(".")[2] in _MAKES
    on_default = is_creation and argument(node, None, "device") is None
    if on_default and not scanned.once(("default device",), _has_default_device, scanned):
        yield hit("wide on cpu", node, dtype=dtype)
        return
    yield hit("wide", node, dtype=dtype)


def _has_default_device(scanned: Scanned) -> bool:
    """Return whether the file makes tensors on another device than the CPU where it names none."""
    calls = (node for node in scanned.program.nodes if isinstance(node, ast.Call))
    devices = (argument(each, 0, "device") for each in calls if last(each.func) == "set_default_device")
    return any(each is not None and scanned.mac.constant(scanned.unwrap_device(each)) != "cpu" for each in devices)


def _from_numpy(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``torch.from_numpy(np.random.rand(3)).to("mps")``: the tensor keeps the dtype of the array."""
    name, called = scanned.dotted_name(node.func), method(node)
    moved: ast.expr = node
    if called in {"to", "cuda"} and not name and isinstance(node.func, ast.Attribute):
        moved, device = node.func.value, argument(node, 0, "device")
        if len(node.args) > 1 or any(word.arg in {"dtype", None} for word in node.keywords):
            return
    elif name in TENSORS:
        device = argument(node, None, "device")
    else:
        return
    is_mps = _is_mps(device, scanned) if device is not None else called == "cuda" or None
    kind = scanned.once(("dtypes",), Dtypes, scanned).kind(moved) if is_mps is not None else None
    if kind is not None and kind.family == "torch" and kind.dtype in _WIDE:
        dtype = _WIDE[kind.dtype]
        yield hit("wide of numpy", node, severity="error" if is_mps and called != "cuda" else None, dtype=dtype)


def _is_mps(device: ast.expr, scanned: Scanned) -> bool | None:
    """Return whether a device is MPS (True), or may be (False) by its name; None for another or an unclear value."""
    values = (device, scanned.program.only_value(device) or device)
    inner = [part for each in values if (part := scanned.unwrap_device(each)) is not each]
    text = scanned.mac.constant(inner[0] if inner else device)
    if isinstance(text, str):
        return text.startswith("mps") or (False if is_cuda(text) else None)
    is_named = not isinstance(device, (ast.Constant, ast.Call)) and may_be_device(device)
    return False if inner or is_named else None


def asked_dtype(node: ast.Call, scanned: Scanned) -> str:
    """The wide dtype that a call names; empty for another dtype."""
    name, last = scanned.dotted_name(node.func), method(node)
    if name == "torch.DoubleTensor":
        return "float64"
    if last in _METHODS and not name and not node.args and torch_alias(scanned):
        return _METHODS[last]
    keyword = argument(node, None, "dtype")
    candidates = [keyword] if keyword else []
    if last in {"to", "type"} and not name:
        candidates += node.args
    for candidate in candidates:
        # Also through one assignment: ``dtype = torch.float64``.
        named = scanned.dotted_name(candidate) or scanned.dotted_name(scanned.program.only_value(candidate))
        if (dtype := _DTYPES.get(named)) is not None:
            return dtype
        text = scanned.mac.constant(candidate) if last == "type" else None
        if isinstance(text, str) and text in _TEXTS:
            return _TEXTS[text]
    return ""


def _on_cpu(node: ast.Call, scanned: Scanned) -> bool:
    """Return whether the code itself puts the value on the CPU, before or in the call."""
    for call in chain(node):
        if call is not node and method(call) in _TO_CPU:
            return True
        device = argument(call, None, "device", "map_location")
        places = [*([device] if device else []), *(call.args if method(call) == "to" else [])]
        if any(scanned.mac.constant(scanned.unwrap_device(each)) == "cpu" for each in places):
            return True
    return False


# -- OC211: float64 as the default dtype of all tensors --------------------------------------------

_SETS = {"torch.set_default_dtype", "torch.set_default_tensor_type"}
_DOUBLE = {"torch.float64", "torch.double", "torch.DoubleTensor"}


@rule("OC211", calls={name.rpartition(".")[2] for name in _SETS})
def find_wide_defaults(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """Calls that make float64 the default."""
    if scanned.dotted_name(node.func) not in _SETS:
        return
    dtype = argument(node, 0, "d", "t")
    if dtype and (scanned.dotted_name(dtype) or scanned.mac.constant(dtype)) in _DOUBLE:
        yield hit("wide default", node)


# -- OC212: complex numbers, for a Mac whose torch or macOS has none -------------------------------

_TORCH, _MACOS = Version(2, 3), Version(14)
_COMPLEX = {"torch.complex64", "torch.cfloat"}


def _with_torch(node: ast.AST, scanned: Scanned) -> bool:
    """Return whether the literal is in one expression with a call of torch."""
    top = node
    for _, place in scanned.program.ancestors(node):
        if not isinstance(place.parent, ast.expr):
            break
        top = place.parent
    return scanned.once(("calls torch", top), _calls_torch, top, scanned)


def _calls_torch(node: ast.AST, scanned: Scanned) -> bool:
    calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
    return any(scanned.dotted_name(call.func).startswith("torch.") for call in calls)


@rule("OC212", applies=lambda target: target.torch < _TORCH or target.macos < _MACOS)
def find_complex_numbers(node: ast.Call | ast.Constant, scanned: Scanned) -> Iterator[Hit]:
    """Imaginary literals in calls of torch, and dtype=torch.complex64."""
    if isinstance(node, ast.Call):
        is_complex = scanned.dotted_name(argument(node, None, "dtype")) in _COMPLEX
    else:
        is_complex = isinstance(node.value, complex) and _with_torch(node, scanned)
    if is_complex:
        yield hit("complex", node, torch=_TORCH, macos=_MACOS.major)


# -- OC230: float8, which older kernels do not cast ------------------------------------------------

#: The release whose kernels cast float8_e4m3fn; none casts another kind of float8.
_CASTS = Version(2, 15)
_FLOAT8 = "torch.float8_"
_CAST_KIND = "torch.float8_e4m3fn"


@rule("OC230")
def find_float8(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``.to(torch.float8_e4m3fn)``, ``dtype=torch.float8_e5m2``, ``storage_dtype=torch.float8_e4m3fn``."""
    named = [*node.args, *(word.value for word in node.keywords if word.arg)]
    dtypes = [scanned.dotted_name(each) or scanned.dotted_name(scanned.program.only_value(each)) for each in named]
    kind = next((each for each in dtypes if each.startswith(_FLOAT8)), "")
    can_cast = kind == _CAST_KIND and scanned.target.torch >= _CASTS
    if not kind or can_cast or _on_cpu(node, scanned):
        return
    dtype = kind.removeprefix("torch.")
    since = f"; torch {_CASTS} casts it" if kind == _CAST_KIND else ""
    yield hit("float8", node, dtype=dtype, since=since)
