"""Reads what ``torch.save`` wrote, by the opcodes of the pickle: nothing is unpickled, and no code runs.

The opcodes move placeholders over a stack, as an unpickler moves objects: a class or a function is its name, and a
call is a ``_PickledCall`` of the name and the arguments.
"""

import io
import pickletools
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from opcheck.common import documents
from opcheck.common.documents import DocumentError
from opcheck.common.names import DTYPES, cpp_name
from opcheck.weights.stored import MOST_TENSORS, StoredFile, StoredTensor, count_elements, read_member

#: Bytes of a pickle without its tensors, and its opcodes: a checkpoint of 100,000 tensors has 4 million.
_LONGEST, _MOST_OPCODES = 64 << 20, 8 << 20
#: Values that are followed in search of tensors.
_MOST_VALUES = 4 << 20
#: The first number of a pickle that torch wrote before 1.6 (torch/serialization.py, MAGIC_NUMBER).
_LEGACY = 0x1950A86A20F9469CFC6C
#: Storages by their class, and dtypes by their name.
_STORAGES = {f"torch.{cpp_name(name)}Storage": name for name in DTYPES} | {f"torch.{name}": name for name in DTYPES}
_UNTYPED = "torch.storage.UntypedStorage"
_REBUILDS = "torch._utils._rebuild_"
#: Functions whose first argument is a tensor, or the arguments of one.
_WRAPPERS = ("torch._utils._rebuild_parameter", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")

#: A tensor of a subclass: the function that makes it, the class, the function's arguments, the attributes.
_OF_SUBCLASS, _SUBCLASS_PARTS = "torch._tensor._rebuild_from_type_v2", 4


class _Mark:
    """The place on the stack where the items of a collection begin."""


class _PickledCall:
    """A call of a function or a class: what it would return."""

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name = name
        self.arguments = arguments
        self.state: list[Any] = []


class _StorageReference(NamedTuple):
    """A reference to a member with the values of tensors."""

    dtype: str
    key: str
    location: str
    elements: int


def read(stream: BinaryIO, size: int) -> StoredFile:
    """Return the tensors of a file that ``torch.save`` wrote, as an archive or as it did before 1.6.

    Raises:
        DocumentError: it is damaged, or no such file.
        zipfile.BadZipFile: as ``zipfile`` raises it.
    """
    start = stream.read(2)
    stream.seek(0)
    if start == b"PK":
        return _of_archive(documents.open_zip(stream), size)
    return _of_pickles(stream.read(_LONGEST + 1), size)


def _of_archive(archive: zipfile.ZipFile, size: int) -> StoredFile:
    members = {info.filename.partition("/")[2] or info.filename: info for info in archive.infolist()}
    pickle = members.get("data.pkl")
    if pickle is None:
        raise DocumentError("it has no member data.pkl, as torch.save writes it")
    machine = _OpcodeStack()
    machine.run(io.BytesIO(read_member(archive, pickle, _LONGEST)))
    stored = {name.removeprefix("data/"): info for name, info in members.items() if name.startswith("data/")}
    found = _collect_tensors(machine)
    for key, storage in found.storages.items():
        info = stored.get(key)
        claimed = storage.elements * DTYPES[storage.dtype].itemsize
        if info is None or claimed > info.file_size or info.header_offset + info.compress_size > size:
            has = "no member" if info is None else f"a member of {info.file_size:,} bytes"
            raise DocumentError(f"storage {key[:40]!r} claims {claimed:,} bytes, and has {has}")
    return found.file("pt")


def _of_pickles(content: bytes, size: int) -> StoredFile:
    """Read pickles in a row: torch wrote a magic number, a version, the system, the object and its storages' names."""
    stream = io.BytesIO(content)
    machine = _OpcodeStack()
    machine.run(stream)
    if machine.result == _LEGACY:
        for _ in range(3):
            machine.run(stream)
    found = _collect_tensors(machine)
    if found.nbytes() > size:
        raise DocumentError(f"its storages claim {found.nbytes():,} bytes, and the file has {size:,}")
    return found.file("pt")


class _OpcodeStack:
    """The stack of an unpickler, with placeholders."""

    def __init__(self) -> None:
        self.result: Any = None
        self.names: set[str] = set()
        self._left = _MOST_OPCODES

    def run(self, stream: BinaryIO) -> None:
        """Follow a pickle to its end; ``result`` is its object.

        Raises:
            DocumentError: it is damaged.
        """
        stack: list[Any] = []
        memo: dict[int, Any] = {}
        try:
            for opcode, argument, _ in pickletools.genops(stream):
                self._count()
                self._step(opcode.name, argument, stack, memo)
            self.result = stack[-1]
        except DocumentError:
            raise
        except (ValueError, IndexError, KeyError, TypeError, OverflowError, AttributeError) as error:
            raise DocumentError(f"its pickle is damaged: {str(error)[:200]}") from error

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise DocumentError("its pickle has too many opcodes")

    def _step(self, name: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:  # noqa: C901, PLR0912 - a table of opcodes
        if name in _NEW:
            stack.append(_NEW[name]())
        elif name in _PUTS:
            memo[len(memo) if argument is None else int(argument)] = stack[-1]
        elif name in _GETS:
            stack.append(memo[int(argument)])
        elif name in _COUNTED:
            count = _COUNTED[name]
            stack[-count:] = [tuple(stack[-count:])]
        elif name in _FROM_MARK:
            stack.append(_FROM_MARK[name](_pop_items(stack)))
        elif name in {"APPENDS", "SETITEMS", "ADDITEMS"}:
            _add(items=_pop_items(stack), to=stack[-1])
        elif name in {"APPEND", "SETITEM"}:
            items = [stack.pop() for _ in range(1 if name == "APPEND" else 2)]
            _add(items=items[::-1], to=stack[-1])
        elif name in {"GLOBAL", "STACK_GLOBAL"}:
            words = (stack.pop(-2), stack.pop()) if argument is None else argument.split(" ", 1)
            stack.append(self._name(".".join(map(str, words))))
        elif name in {"REDUCE", "NEWOBJ"}:
            arguments = stack.pop()
            stack.append(_call(stack.pop(), arguments))
        elif name == "NEWOBJ_EX":
            keywords, arguments = stack.pop(), stack.pop()
            stack.append(_call(stack.pop(), (*arguments, keywords)))
        elif name in {"OBJ", "INST"}:
            items = _pop_items(stack)
            function = self._name(argument.replace(" ", ".")) if name == "INST" else items.pop(0)
            stack.append(_call(function, tuple(items)))
        elif name == "BUILD":
            state = stack.pop()
            if isinstance(stack[-1], _PickledCall):
                stack[-1].state.append(state)
        elif name in {"BINPERSID", "PERSID"}:
            stack.append(_storage(stack.pop() if argument is None else argument))
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            _pop_items(stack)
        elif name == "DUP":
            stack.append(stack[-1])
        elif name not in {"PROTO", "FRAME", "STOP"}:
            # Numbers and texts; of bytes only that they are some.
            stack.append(b"" if isinstance(argument, (bytes, bytearray)) else argument)

    def _name(self, name: str) -> str:
        self.names.add(name)
        return name


#: Opcodes that push a new value, and its factory; a set is a list here.
_NEW: dict[str, Callable[[], Any]] = {"EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": list}
_NEW |= {"NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False, "MARK": lambda: _Mark}
_PUTS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GETS = {"GET", "BINGET", "LONG_BINGET"}
_COUNTED = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def _dictionary(items: list[Any]) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    _add(items, result)
    return result


_Collect = Callable[[list[Any]], Any]
_FROM_MARK: dict[str, _Collect] = {"TUPLE": tuple, "LIST": list, "FROZENSET": list, "DICT": _dictionary}


def _pop_items(stack: list[Any]) -> list[Any]:
    """Take the items after the last mark, and the mark."""
    items = []
    while stack[-1] is not _Mark:
        items.append(stack.pop())
    stack.pop()
    return items[::-1]


def _add(items: list[Any], to: Any) -> None:
    if isinstance(to, list):
        to.extend(items)
    elif isinstance(to, dict):
        for key, value in zip(items[::2], items[1::2], strict=True):
            to[key if isinstance(key, str) else repr(key)[:80]] = value
    elif isinstance(to, _PickledCall):
        to.state.extend(items)


def _call(function: Any, arguments: Any) -> Any:
    name = function if isinstance(function, str) else ""
    if name == "collections.OrderedDict" and not arguments:
        return {}
    if name == _OF_SUBCLASS and isinstance(arguments, tuple) and len(arguments) == _SUBCLASS_PARTS:
        function, _, inner, state = arguments
        call = _call(function, inner)
        if isinstance(call, _PickledCall):
            call.state.append(state)
        return call
    return _PickledCall(name, arguments if isinstance(arguments, tuple) else (arguments,))


def _storage(identity: Any) -> Any:
    """Return the storage of a persistent identity: ``("storage", class, key, location, elements)``."""
    if not (isinstance(identity, tuple) and len(identity) >= _STORAGE_PARTS and identity[0] == "storage"):
        return None
    _, kind, key, location, elements = identity[:_STORAGE_PARTS]
    dtype = _STORAGES.get(str(kind), "uint8" if kind == _UNTYPED else "")
    if not dtype or not isinstance(elements, int):
        raise DocumentError(f"a storage is of the class {str(kind)[:80]!r}")
    return _StorageReference(dtype, str(key), str(location), count_elements((elements,), str(key)))


_STORAGE_PARTS = 5


class _TensorCollection:
    """The tensors and the storages of an object."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.tensors: list[StoredTensor] = []
        self.storages: dict[str, _StorageReference] = {}

    def add(self, name: str, storage: _StorageReference, shape: Any, dtype: str) -> None:
        """Note a tensor; the first tensor of a storage has its bytes."""
        if len(self.tensors) >= MOST_TENSORS:
            raise DocumentError(f"it has more than {MOST_TENSORS:,} tensors")
        sizes = [size for size in shape if isinstance(size, int)] if isinstance(shape, tuple) else []
        is_new = storage.key not in self.storages
        self.storages.setdefault(storage.key, storage)
        nbytes = storage.elements * DTYPES[storage.dtype].itemsize if is_new else 0
        self.tensors.append(StoredTensor(name, dtype, count_elements(sizes, name), nbytes))

    def nbytes(self) -> int:
        """Return the bytes of all storages."""
        return sum(each.elements * DTYPES[each.dtype].itemsize for each in self.storages.values())

    def file(self, form: str) -> StoredFile:
        """Return what was found as a file of that format."""
        places = frozenset(each.location for each in self.storages.values())
        return StoredFile(form, tuple(self.tensors), {}, self.names, places)


def _collect_tensors(machine: _OpcodeStack) -> _TensorCollection:
    """Find the tensors in the object of a pickle."""
    found = _TensorCollection(frozenset(machine.names))
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", machine.result)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, _PickledCall) and value.name.startswith(_REBUILDS):
            storage = next((each for each in value.arguments if isinstance(each, _StorageReference)), None)
            if storage is not None:
                shape = next((each for each in value.arguments[2:] if isinstance(each, tuple)), ())
                named = (_STORAGES.get(each) for each in value.arguments if isinstance(each, str))
                found.add(name, storage, shape, next(filter(None, named), storage.dtype))
                continue
        if isinstance(value, (dict, list, tuple, _PickledCall)) and not isinstance(value, _StorageReference):
            if id(value) in seen:
                continue
            seen.add(id(value))
            waiting.extend(reversed([*_parts(name, value)]))
            if len(waiting) + len(seen) > _MOST_VALUES:
                raise DocumentError("its pickle has too many values")
    return found


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value contains, with names as in a state dictionary."""
    if isinstance(value, dict):
        yield from ((f"{name}.{key}".lstrip("."), item) for key, item in value.items())
    elif isinstance(value, _PickledCall):
        is_wrapper = value.name.startswith(_WRAPPERS)
        yield from ((name, item) for item in (value.arguments[:1] if is_wrapper else value.arguments))
        yield from ((name, item) for item in value.state)
    else:
        yield from ((f"{name}[{index}]", item) for index, item in enumerate(value))
