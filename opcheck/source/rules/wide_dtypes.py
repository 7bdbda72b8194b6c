"""Dtypes that MPS has not: float64, complex128, and on older targets complex numbers and float8."""

import ast
import bisect
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from opcheck.common.memo import cached_method
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
#: The functions and methods of NumPy, and those of other libraries by their full names, by the dtype of their array.
_ELSEWHERE = read_lists("results_elsewhere")
_RESULTS = read_lists("results") | _ELSEWHERE
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
_FITTED = read_words("fitted", "numpy")
_ADDS = {"append", "extend", "insert"}
_PROBABILITIES = {"decision_function", "predict_proba"}
#: A loop over them is one over their arguments.
_LOOPS = {"enumerate", "tqdm", "zip"}
_LOADERS = {"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"}
#: The index of elements behind a star in the target of an assignment.
_BEHIND_STAR = -1
_TENSOR_SETS = {"torch.utils.data.TensorDataset", "torch.utils.data.dataset.TensorDataset"}
_CONSTANTS = {f"{module}.{name}" for module in ("numpy", "math") for name in ("pi", "e", "inf", "nan")}
_GENERATORS = {"numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.Generator"}
#: The functions of torch that keep the dtype of an array, those that join several, and those of float32.
TENSORS = {"torch.tensor", "torch.as_tensor", "torch.asarray"}
_MADE = {*TENSORS, "torch.from_numpy", "torch.utils.data.default_collate"} | {
    f"torch.{name}" for name in ("stack", "cat", "concat", "hstack", "vstack")
}
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
        self._kinds: dict[tuple[ast.AST, int | str | None], ArrayKind | None] = {}
        self._positions: dict[int, list[tuple[int, int]]] = {}
        self._depth = 0

    def kind(self, node: ast.AST | None, key: int | str | None = None) -> ArrayKind | None:
        """Return the kind of an expression, or of its part at an index or a key; None where it is not certain."""
        if node is None or (node, key) in self._kinds or self._depth >= _DEEPEST:
            return None if node is None else self._kinds.get((node, key))
        self._kinds[node, key] = None  # of a value that depends on itself
        self._depth += 1
        self._kinds[node, key] = self._find(node) if key is None else self._find_part(node, key)
        self._depth -= 1
        return self._kinds[node, key]

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
                key = index.value if isinstance(index, ast.Constant) else None
                kind = self.kind(value, key) if isinstance(key, (int, str)) else self._array(value)
                kind = kind and kind._replace(is_scalar=kind.is_scalar or not is_part)
            case ast.Attribute():
                kind = self._attribute(node)
            case ast.Call():
                kind = self._call(node)
        return kind

    def _find_part(self, node: ast.AST, key: int | str) -> ArrayKind | None:
        kind: ArrayKind | None = None
        match node:
            case _ if key == _BEHIND_STAR:
                kind = None
            case ast.Tuple(elts=parts) | ast.List(elts=parts) if isinstance(key, int) and key < len(parts):
                kind = self.kind(parts[key])
            case ast.Dict():
                kind = _agree([self.kind(value) for value in _list_entries(node, key)])
            case ast.Name(id=name):
                value = self._program.only_value(node)
                kind = self._entry(node, value, key) if isinstance(value, ast.Dict) else self._name(node, name, key=key)
            case ast.Call(func=function, args=args):
                full = self._scanned.dotted_name(function)
                rules = _SEVERAL.get(full, "").split()
                if isinstance(key, int) and key < len(rules):
                    kind = self._numpy(node, "", args, rules[key])
                elif full == "sklearn.model_selection.train_test_split" and isinstance(key, int):
                    kind = self._array(args[key // 2]) if key // 2 < len(args) else None
                elif returned := self._list_returned(node):
                    kind = _agree([self.kind(value, key) for value in returned])
                elif loader := _read_next(node):
                    kind = self._find_batch(loader, [key])
                else:
                    kind = self._array(node)
            case _:
                kind = self._array(node)
        return kind

    def _entry(self, table: ast.Name, literal: ast.Dict, key: int | str) -> ArrayKind | None:
        """The kind at a key of a dict: that of all values that the file gives it."""
        program = self._program
        values = _list_entries(literal, key)
        for use in program.uses.get(table.id, ()):
            match parent := program.parent(use):
                case ast.Subscript(ctx=ast.Store(), slice=ast.Constant(value=name)):
                    assigned = program.parent(parent)
                    if name == key:
                        values.append(assigned.value if isinstance(assigned, ast.Assign) else None)
                case ast.Attribute(attr="update"):
                    return None
                case _ if not isinstance(getattr(parent, "ctx", None), ast.Load | None):
                    return None
        return _agree(list(map(self.kind, values)))

    def _array(self, node: ast.AST) -> ArrayKind | None:
        """The kind of an array or a tensor, without regard to its dimensions."""
        kind = self.kind(node)
        is_array = kind is not None and kind.family in {"numpy", "torch"}
        return kind._replace(is_scalar=False) if kind and is_array else None

    # -- names -----------------------------------------------------------------------------------

    def _name(
        self, node: ast.AST, name: str, target: ast.expr | None = None, key: int | str | None = None
    ) -> ArrayKind | None:
        """The kind at the last binding above that the program passes for certain, if those between agree."""
        program = self._program
        bindings = program.bound_in(program.scope(node), name)
        if not bindings or program.scope(bindings[0].node) is not program.scope(node):
            return _agree([self._find_bound(each, name, key) for each in bindings[: _MOST + 1]])
        if id(bindings) not in self._positions:
            self._positions[id(bindings)] = [
                _position(program.parent(each.node) if _is_inside(each) else each.node) for each in bindings
            ]
        end = bisect.bisect_left(self._positions[id(bindings)], _start(target or node))
        blocks = {(place.parent, place.field) for _, place in program.ancestors(node)}
        kinds: list[ArrayKind | None] = []
        for binding in reversed(bindings[max(0, end - _MOST) : end]):
            place = program.place(binding.node)
            kinds.append(self._find_bound(binding, name, key))
            is_certain = place is None or (place.parent, place.field) in blocks
            if is_certain or _is_inside(binding) or kinds[-1] is None:
                break
        return _agree(kinds)

    def _find_bound(self, binding: Binding, name: str, key: int | str | None = None) -> ArrayKind | None:
        keys = [] if key is None else [key]
        match binding.node:
            case ast.For(target=target, iter=values) | ast.comprehension(target=target, iter=values):
                path = [*_find_path(target, name), *keys]
                while isinstance(values, ast.Call) and (loop := last(values.func)) in _LOOPS and values.args:
                    position = path.pop(0) if path and loop != "tqdm" else 0
                    if not isinstance(position, int) or (loop == "enumerate" and position != 1):
                        return None
                    values = values.args[min(position, len(values.args) - 1) if loop == "zip" else 0]
                return self._find_batch(values, path)
            case ast.arg():
                return self._parameter(binding.node, name, key)
            case ast.Assign(targets=[ast.Tuple() as target], value=value) if binding.value is None:
                path = [*_find_path(target, name), *keys]
                return self.kind(value, path[0]) if len(path) == 1 else None
        is_changeable = key is not None and isinstance(binding.value, (ast.List, ast.Dict))
        return self._array(binding.node) if is_changeable else self.kind(binding.value or binding.node, key)

    def _find_batch(self, loader: ast.expr, path: Sequence[int | str]) -> ArrayKind | None:
        """The kind of the batches of a loader, which joins the samples of a dataset in torch's own way."""
        samples = self._list_samples(loader)
        if not samples and not path and (kind := self._array(loader)):
            return kind._replace(is_scalar=True)
        kind = _agree([self.kind(sample, *path) for sample in samples]) if len(path) <= 1 else None
        is_number = kind is not None and (kind.family in {"numpy", "torch"} or kind.is_scalar)
        return kind._replace(family="torch", is_scalar=False) if kind and is_number else None

    def _list_samples(self, loader: ast.expr) -> list[ast.expr | None]:
        """What the datasets of a loader return for an index; None among them where that is unknown."""
        samples: list[ast.expr | None] = []
        for call in self.resolve(loader):
            full = self._scanned.dotted_name(call.func) if isinstance(call, ast.Call) else ""
            if not (isinstance(call, ast.Call) and full in _LOADERS) or argument(call, 6, "collate_fn"):
                return []
            for dataset in self.resolve(argument(call, 0, "dataset")):
                owner = self.find_class(dataset)
                methods = [part for part in owner.body if getattr(part, "name", "") == "__getitem__"] if owner else []
                is_set = isinstance(dataset, ast.Call) and self._scanned.dotted_name(dataset.func) in _TENSOR_SETS
                tensors = [ast.Tuple(elts=dataset.args)] if is_set else [None]  # type: ignore[attr-defined]  # a Call
                samples += self._list_returned(methods[0]) if methods else tensors
        return samples

    def resolve(self, node: ast.expr | None, depth: int = 0, seen: set[ast.expr] | None = None) -> list[ast.expr]:
        """Return the expressions that a name, a parameter or a call of a function of the file evaluates to."""
        # Each once: the ways through functions that call each other double with each of them.
        seen = set() if seen is None else seen
        if node is None or depth > _MOST or node in seen:
            return []
        seen.add(node)
        name, bindings = last(node), self._program.bindings(node)[: _MOST + 1]
        # ``model = model.to(device)`` keeps what the model is.
        first = [each for each in bindings if not each.value or name not in map(last, walk(each.value))]
        bound = first[0] if len(first) == 1 else None
        values = [bound.value] if bound else self._list_returned(node)
        if bound and isinstance(bound.node, ast.arg):
            values = self._arguments(bound.node, name)
        elif bound and isinstance(bound.node, ast.Assign) and not bound.value:
            path = _find_path(bound.node.targets[0], name)
            whole = self.resolve(bound.node.value, depth + 1, seen) if len(path) == 1 else []
            parts = [each.elts for each in whole if isinstance(each, ast.Tuple)]
            values = [part[path[0]] for part in parts if path[0] < len(part)]
        return [each for value in values for each in self.resolve(value, depth + 1, seen)] if values else [node]

    def find_class(self, value: ast.expr | None) -> ast.ClassDef | None:
        """Return the class of the file that an expression calls."""
        bound = self._program.only_binding(value.func) if isinstance(value, ast.Call) else None
        return bound.node if bound and isinstance(bound.node, ast.ClassDef) else None

    def _list_appended(self, node: ast.AST) -> list[ast.expr | None]:
        """What the function appends to a list that is empty at first."""
        parent, program = self._program.parent(node), self._program
        name = last(parent.targets[0]) if isinstance(parent, ast.Assign) else ""
        names = (use for use in program.uses.get(name, ()) if isinstance(use, ast.Name))
        uses = (use for use in names if program.scope(use) is program.scope(node))
        calls = ((method(call), call) for use in uses if (call := program.parent(program.parent(use) or use)))
        parts = [(called, call.args[:1]) for called, call in calls if isinstance(call, ast.Call) and called]
        return [args[0] if called == "append" and args else None for called, args in parts if called in _ADDS]

    def _parameter(self, node: ast.arg, name: str, key: int | str | None = None) -> ArrayKind | None:
        """The kind by the annotation of a parameter, or by all uses of its function."""
        match node.annotation:
            case ast.Subscript(value=value, slice=index) if last(value) == "NDArray":
                return self._cast("numpy", index)
        return _agree([self.kind(value, key) for value in self._arguments(node, name)])

    def _arguments(self, node: ast.arg, name: str) -> list[ast.expr | None]:
        """What the calls of a function of the file give to a parameter, or its default; empty if it has other uses."""
        function = self._program.scope(node)
        if not isinstance(function, Function):
            return []
        parameters = [*function.args.posonlyargs, *function.args.args]
        by_parameter = {parameter: value for _, parameter, value in defaults(function)}
        owner = self._program.scope(function)
        is_constructor = isinstance(owner, ast.ClassDef) and function.name == "__init__"
        uses = self._program.uses.get(owner.name if is_constructor else function.name, [])  # type: ignore[attr-defined]
        if node not in parameters[is_constructor:] or len(uses) > _MOST or function.decorator_list:
            return []
        values: list[ast.expr | None] = []
        for use in uses:
            call = self._program.parent(use) if isinstance(use, ast.Name) else None
            if not isinstance(call, ast.Call) or call.func is not use:
                return []
            values.append(argument(call, parameters.index(node) - is_constructor, name) or by_parameter.get(name))
        return values

    def _list_returned(self, called: ast.AST) -> list[ast.expr | None]:
        """What a function of the file, or a called method, returns; empty where it yields, or is decorated."""
        if isinstance(called, ast.Call):
            bound = self._program.only_binding(called.func)
            called = bound.node if bound else called
        is_plain = isinstance(called, ast.FunctionDef) and not called.decorator_list
        return self._read_returns(called) if is_plain else []

    @cached_method
    def _read_returns(self, function: ast.AST) -> list[ast.expr | None]:
        parts = (ast.Return, ast.Yield, ast.YieldFrom)
        own = [part for part in walk(function) if isinstance(part, parts) and self._program.scope(part) is function]
        is_function = all(isinstance(part, ast.Return) for part in own)
        return [part.value for part in own[: _MOST + 1]] if is_function else []

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
            return _agree([self._find_bound(binding, node.attr) for binding in bindings])
        if node.attr in _FITTED:
            return self._find_fitted(node.value)
        if owner := self.find_class(self._program.only_value(node.value)):
            bindings, uses = self._program.members(owner, node.attr), self._program.uses[node.attr]
            is_theirs = sum(isinstance(getattr(use, "ctx", None), ast.Store) for use in uses) == len(bindings)
            return _agree([self._find_bound(each, node.attr) for each in bindings]) if is_theirs else None
        if node.attr in {"data", "target"}:  # also of the data of sklearn.datasets
            return self.kind(node.value, int(node.attr == "target"))
        return self._array(node.value) if node.attr in {"T", "mT", "values"} else None

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
        if name in _GENERATORS:
            return ArrayKind("generator")
        if name.startswith("numpy.") or name in _ELSEWHERE:
            return self._numpy(node, name if name in _ELSEWHERE else name.rpartition(".")[2], node.args)
        if name.startswith("torch."):
            return self._torch(node, name)
        match node.func:
            case ast.Attribute(value=value, attr=method) if not name:
                return self._method(node, value, method)
            case ast.Name(id=called):
                return self._call_of_file(node, called)
        return None

    def _call_of_file(self, node: ast.Call, called: str) -> ArrayKind | None:
        """A builtin function, or a function of the file."""
        is_builtin = not self._program.bindings(node.func)
        if is_builtin and called in {"float", "int"}:
            return ArrayKind("python", _BUILTINS[called], is_scalar=True)
        if is_builtin and called in {"list", "range"} and node.args:
            return ArrayKind("python", _INT64) if called == "range" else self.kind(node.args[0])
        if loader := _read_next(node):
            return self._find_batch(loader, [])
        returned = self._list_returned(node)
        has_parts = any(isinstance(each, ast.Tuple) for each in returned)
        return None if has_parts else _agree([self.kind(each) for each in returned])

    def _numpy(self, node: ast.Call, name: str, values: list[ast.expr], rule: str = "") -> ArrayKind | None:
        """A function of NumPy, or a method with its object as the first value."""
        asked = argument(node, _DTYPE_POSITION.get(name), "dtype")
        rule = rule or _RESULTS.get(name, "")
        if asked is not None:
            return self._cast("numpy", asked)
        if rule in _SPELLED:
            return ArrayKind("numpy", _SPELLED[rule], is_scalar=not (node.args or node.keywords))
        kind = _join([self.kind(value) for value in values[_DECIDING.get(rule, slice(1))]])
        if not rule and name in _SPELLED:  # numpy.float32(x)
            return ArrayKind("numpy", _SPELLED[name], is_scalar=kind is None or kind.is_scalar)
        if kind is None or kind.family not in {"python", "numpy"} or not rule:
            return None
        dtype, whole = kind.dtype, kind.dtype[0] < FLOAT64[0]
        if rule == "complex":
            dtype = _COMPLEX64 if dtype == _FLOAT32 else COMPLEX128
        elif rule == "real" and dtype[0] == COMPLEX128[0]:
            dtype = (FLOAT64[0], dtype[1] // 2)
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
        if name in _PROBABILITIES and (fitted := self._find_fitted(value)):
            return fitted
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


def _list_entries(literal: ast.Dict, key: int | str) -> list[ast.expr | None]:
    pairs = zip(literal.keys, literal.values, strict=True)
    return [value for name, value in pairs if isinstance(name, ast.Constant) and name.value == key]


def _find_path(target: ast.expr, name: str) -> list[int]:
    """The indexes that lead to a name in the target of an assignment, or of a loop."""
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
    for position, part in enumerate(parts):
        if isinstance(part, ast.Starred):
            return [_BEHIND_STAR]
        if last(part) == name or _find_path(part, name):
            return [position, *_find_path(part, name)]
    return []


def _read_next(node: ast.Call) -> ast.expr | None:
    """Return what ``next(iter(x))`` takes a part of; None for another call."""
    inner = node.args[0] if last(node.func) == "next" and node.args else None
    return inner.args[0] if isinstance(inner, ast.Call) and last(inner.func) == "iter" and inner.args else None


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
_PARAMETERS = {"torch.nn.Parameter", "torch.nn.parameter.Parameter"}
_CONTAINERS = {"torch.nn.Sequential", "torch.nn.DataParallel"}
#: They make a tensor on the CPU where no device is given.
_MAKES = read_words("makes_tensors")


@rule(
    "OC210", calls={*_METHODS, "DoubleTensor", "to", "type", "dtype", "cuda", "device", "register_buffer", "Parameter"}
)
def find_wide_dtypes(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``.double()``, ``.to(torch.float64)``, ``dtype=torch.float64`` and the like."""
    dtype = asked_dtype(node, scanned)
    if not dtype:
        is_of_module = method(node) == "register_buffer" or scanned.dotted_name(node.func) in _PARAMETERS
        yield from (_in_module if is_of_module else _from_numpy)(node, scanned)
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
    moved, is_mps = _read_move(node, scanned)
    kind = scanned.once(("dtypes",), Dtypes, scanned).kind(moved) if is_mps is not None else None
    if kind is not None and kind.family == "torch" and kind.dtype in _WIDE:
        yield hit("wide of numpy", node, severity="error" if is_mps else None, dtype=_WIDE[kind.dtype])


def _read_move(node: ast.Call, scanned: Scanned) -> tuple[ast.expr, bool | None]:
    """Return what a call moves without a cast, and whether to MPS (True), or maybe; None for another call."""
    name, called = scanned.dotted_name(node.func), method(node)
    if called in {"to", "cuda"} and not name and isinstance(node.func, ast.Attribute):
        device, is_cast = argument(node, 0, "device"), _is_cast(node)
        is_mps = _is_mps(device, scanned) if device else False if called == "cuda" else None
        return node.func.value, None if is_cast else is_mps and called == "to"
    device = argument(node, None, "device") if name in TENSORS else None
    return node, _is_mps(device, scanned) if device else None


def _in_module(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """A float64 array that becomes a buffer or a parameter: the module moves it, with all that it has."""
    program, tensor = scanned.program, argument(node, 1 if method(node) == "register_buffer" else 0, "tensor", "data")
    kind = scanned.once(("dtypes",), Dtypes, scanned).kind(tensor)
    owner = program.class_around(node)
    if kind is None or kind.family != "torch" or kind.dtype not in _WIDE or owner is None:
        return
    name = getattr(node.args[0], "value", "") if node.args else ""
    is_replaced = isinstance(name, str) and bool(program.members(owner, name))
    if is_replaced or "self" in _list_cast(walk(owner)):
        return
    moves = scanned.once(("moves of modules",), _find_moves, scanned)
    uses = [(move, is_mps) for move, is_mps, owners in moves if owner in owners]
    if not uses:
        yield hit("wide in module", node, severity="note", dtype=_WIDE[kind.dtype])
    for move, is_mps in uses:
        yield hit("wide in module", node, use=move, severity="error" if is_mps else None, dtype=_WIDE[kind.dtype])


def _find_moves(scanned: Scanned) -> list[tuple[ast.Call, bool, set[ast.ClassDef]]]:
    """The calls that move a module to a device, whether that is MPS, and the classes of its parts."""
    cast = _list_cast(scanned.program.nodes)
    calls = (node for node in scanned.program.nodes if isinstance(node, ast.Call) and method(node) in {"to", "cuda"})
    pairs = [(call, *_read_move(call, scanned)) for call in calls]
    return [
        (call, is_mps, _list_classes(module, scanned))
        for call, module, is_mps in pairs
        if is_mps is not None and last(module) not in cast
    ]


def _list_cast(nodes: Iterable[ast.AST]) -> set[str]:
    """The names of the tensors that a method may cast."""
    return {last(node.func.value) for node in nodes if _is_cast(node)} - {""}  # type: ignore[attr-defined]  # calls


def _is_cast(node: ast.AST) -> bool:
    """Return whether a call is a method that may change the dtypes of a module."""
    if method(node) != "to" or not isinstance(node, ast.Call):
        return method(node) in {"float", "half", "bfloat16", "type"}
    return len(node.args) > 1 or any(word.arg in {"dtype", None} for word in node.keywords)


def _list_classes(module: ast.expr, scanned: Scanned) -> set[ast.ClassDef]:
    """The classes of the file that make a module and its parts."""
    dtypes, waiting, classes = scanned.once(("dtypes",), Dtypes, scanned), [module], set[ast.ClassDef]()
    seen = set[ast.expr]()
    while waiting:
        for value in dtypes.resolve(waiting.pop(), seen=seen):
            owner = scanned.program.class_around(value) if last(value) == "self" else dtypes.find_class(value)
            if owner and owner not in classes:
                classes.add(owner)
                assigned = (part for part in walk(owner) if isinstance(part, ast.Assign))
                waiting += [each.value for each in assigned if isinstance(each.targets[0], ast.Attribute)]
            elif isinstance(value, ast.Call) and scanned.dotted_name(value.func) in _CONTAINERS:
                waiting += value.args
    return classes


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
