"""Kernels whose threads wait for each other, as loops over the lanes of a simdgroup from one wait to the next.

LLVM makes vectors of innermost loops, so the code between two waits becomes a function of its own, a loop over the 32
lanes; where the code has a loop, each turn of it ends with a wait, too.  What a lane needs after a wait is kept in a
frame with an array of 32 for each value, but for what the arguments and the lane's number alone decide: that is
computed again.  threads.cpp calls the functions, for all lanes at once where all wait at the same place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from opcheck.kernels import intrinsics, lowering
from opcheck.kernels.air import CONSTANT, KernelParameter
from opcheck.kernels.ir_templates import fill

_V = r"%[\w.$-]+"
_WAIT = re.compile(
    rf"^  (?:(?P<value>{_V}) = )?(?:tail )?call [^@]*@opcheck_(?P<name>barrier|simdgroup_barrier|exchange)"
    r"\((?P<arguments>.*)\)"
)
_FOLD = re.compile(rf"^  (?P<value>{_V}) = (?:tail )?call [^@]*@opcheck_folded\(ptr [^@]*(?P<fold>@[\w.]+)\)")
_OWN = re.compile(rf"^  (?P<value>{_V}) = (?:tail )?call [^@]*@opcheck_(?P<name>here|lane)\(")
#: Functions of threads.cpp that the loops do without.
_WAITS = re.compile(r"^declare [^\n]*@opcheck_\w+\(.*\n", re.MULTILINE)
_BODY = re.compile(r"^define [^\n]*@opcheck\.body\([^\n]*\{\n(?P<lines>.*?)^\}\n", re.MULTILINE | re.DOTALL)
_UNNAMED = re.compile(r"%(\d+)\b")
#: What separates the cases of a switch.
_CASES = re.compile(r"\n {4,}(?=i\d+ -?\d+, label)|\n +(?=\])")
_LABEL = re.compile(r"^(?P<name>[\w.$-]+):")
_METADATA = re.compile(r", !(?!invariant\.load)[\w.]+ !\d+")
_IDLE = re.compile(r"@llvm\.(?:lifetime|experimental\.noalias|assume)\b")
_ENDING = re.compile(r"  (?:br|switch|ret|unreachable)\b")
_VALUE = re.compile(rf"^  (?P<value>{_V}) = ")
_NAME = re.compile(_V)
_TARGET = re.compile(rf"label ({_V})")
_PHI = re.compile(rf"^  (?P<value>{_V}) = phi (?P<kind>[^\[]+) \[")
_CHOICE = re.compile(rf"\[ (?P<value>[^\]]+?), (?P<before>{_V}) \]")
#: Instructions without memory that cannot trap; floats are kept, and not computed twice.
_PURE = re.compile(
    r" = (?:getelementptr|add|sub|mul|shl|lshr|ashr|and|or|xor|zext|sext|trunc|icmp|select|bitcast|ptrtoint|freeze|"
    r"insertelement|extractelement|(?:tail )?call [^@]*@llvm\.[su](?:min|max)\.)"
)
#: Instructions that cannot trap in the first lines, as all threads run these.
_FIRST = re.compile(r" = (?:load|udiv|urem|sdiv|srem) ")
_LOADED = re.compile(rf" = load [^%@]*, ptr (?P<place>{_V})")
#: Numbers of a thread that are others in the next lane (lowering.POSITIONS).
_MOVING = (0, 3, 18, 19)
#: How a lane waits (threads.cpp).
_BARRIER, _EXCHANGES, _TURNS = range(3)
#: What each function gets besides the kernel's buffers and the numbers of a thread.
_PASSED = fill("lanes.passed")
_MEMCPY = "declare void @llvm.memcpy.p0.p0.i64("


class UnsplitError(ValueError):
    """The code between waits cannot be a loop; the message has the reason."""


class CodePart(NamedTuple):
    """A piece of a block: up to a wait, or to the block's end."""

    label: str
    lines: list[str]
    #: the labels that follow; of a wait that of the part behind it
    after: tuple[str, ...]
    #: the wait at its end
    wait: re.Match[str] | None = None
    #: it ends a turn of a loop
    turns: bool = False

    @property
    def waits(self) -> bool:
        """True if lanes do not go on with the part that follows."""
        return self.turns or self.wait is not None


def wrap(text: str, name: str, arguments: tuple[KernelParameter, ...]) -> str:
    """Return a function ``opcheck.body`` that calls a kernel with pointers and the numbers of a thread."""
    lines, passed = [], []
    for place, (argument, kind) in enumerate(lowering.parameter_types(text, name, arguments)):
        if argument.is_buffer:
            passed.append(f"ptr %p{place}")
            continue
        first = lowering.number_of(argument)
        lines += lowering.position(place, [f"%n{first + i}" for i in range(3)], kind)
        passed.append(f"{kind} %v{place}")
    parameters = ", ".join([*_pointers(arguments), *_numbers("")])
    body = fill("lanes.wrap", parameters=parameters, lines="\n".join(lines), kernel=name, passed=", ".join(passed))
    return f"\n{body}\n"


def _pointers(arguments: tuple[KernelParameter, ...]) -> list[str]:
    return [f"ptr %p{place}" for place, each in enumerate(arguments) if each.is_buffer]


def _numbers(prefix: str) -> list[str]:
    return [f"i32 %{prefix if number in _MOVING else ''}n{number}" for number in range(lowering.NUMBERS)]


def split(module: Any, arguments: tuple[KernelParameter, ...]) -> str:
    """Return a module whose body runs lanes from one wait to the next.

    Args:
        module: with the function of ``wrap``, optimized.
        arguments: of the kernel.

    Raises:
        UnsplitError: the code between waits cannot be a loop.
    """
    text = str(module)
    body = _BODY.search(text)
    assert body is not None
    kinds = [
        str(instruction.type)
        for block in module.get_function("opcheck.body").blocks
        for instruction in block.instructions
    ]
    functions = Splitter(body["lines"], kinds, arguments).functions()
    rest = _WAITS.sub("", text.replace(body[0], ""))
    return "\n".join([rest, functions, "" if _MEMCPY in rest else f"{_MEMCPY}ptr, ptr, i64, i1)\n"])


class Splitter:
    """Makes functions of a body.

    Args:
        lines: of the body, in LLVM's assembly.
        kinds: the types of its instructions, in their order.
        arguments: of the kernel.
    """

    def __init__(self, lines: str, kinds: list[str], arguments: tuple[KernelParameter, ...]) -> None:
        self._arguments = arguments
        self._parts = _read_parts(_UNNAMED.sub(r"%v\1", _CASES.sub(" ", lines)).splitlines())
        self._cut_loops()
        #: the number of each place that lanes resume at
        self._places = {"entry": 0}
        for part in self._parts.values():
            if part.waits:
                self._places[part.after[0]] = len(self._places)
        #: by value: the part that defines it, and the line
        self._homes: dict[str, str] = {}
        self._lines: dict[str, str] = {}
        for part in self._parts.values():
            for line in part.lines:
                if match := _VALUE.match(line):
                    self._homes[match["value"]], self._lines[match["value"]] = part.label, line
        types = [kind for kind in kinds if kind != "void"]
        own = [value for value in self._lines if ".turn." not in value]
        if len(types) != len(own):
            raise UnsplitError("the types of the values are not clear")
        self._types = dict(zip(own, types, strict=True))
        self._types |= {
            value: self._types[value.partition(".turn.")[0]] for value in self._lines.keys() - self._types.keys()
        }
        self._constant = {f"%p{place}" for place, each in enumerate(arguments) if each.space == CONSTANT}
        self._repeated = self._find_repeated()
        #: the values of the frame
        self._kept: dict[str, int] = {}
        for value, line in self._lines.items():
            if " = alloca " in line and self._count_users(value) > 1:
                self._types[value] = line.partition(" = alloca ")[2].partition(", align")[0]
                self._kept[value] = len(self._kept)

    def _count_users(self, memory: str) -> int:
        """Return how many parts use a thread's memory."""
        return sum(
            any(memory in _NAME.findall(line) for line in part.lines if " = alloca " not in line)
            or (part.wait is not None and memory in _NAME.findall(part.wait.group()))
            for part in self._parts.values()
        )

    def _cut_loops(self) -> None:
        """End a turn of each loop without waits with a part that waits."""
        done, cuts = set[str](), list[tuple[str, str]]()
        for start in list(self._parts):
            way = [(start, iter(self._follow(start)))] if start not in done else []
            done.add(start)
            while way:
                label, after = way[-1]
                other = next(after, None)
                if other is None:
                    way.pop()
                elif other in {each for each, _ in way}:
                    cuts.append((label, other))
                elif other not in done:
                    done.add(other)
                    way.append((other, iter(self._follow(other))))
        for number, (last, first) in enumerate(dict.fromkeys(cuts)):
            turn, again = f"opcheck.turn{number}", f"opcheck.again{number}"
            copies = list[str]()
            for at, line in enumerate(self._parts[first].lines):
                if match := _PHI.match(line):
                    choices = {m["before"]: m["value"] for m in _CHOICE.finditer(line)}
                    copy = f"{match['value']}.turn.{number}"
                    copies.append(f"  {copy} = freeze {match['kind']} {choices.pop(f'%{last}')}")
                    choices[f"%{again}"] = copy
                    listed = ", ".join(f"[ {value}, {label} ]" for label, value in choices.items())
                    self._parts[first].lines[at] = f"{line.partition('[')[0]}{listed}"
            ending = self._parts[last]
            ending.lines[-1] = re.sub(rf"%{re.escape(first)}(?![\w.$-])", f"%{turn}", ending.lines[-1])
            after_all = tuple(turn if each == first else each for each in ending.after)
            self._parts[last] = ending._replace(after=after_all)
            self._parts[turn] = CodePart(turn, copies, (again,), turns=True)
            self._parts[again] = CodePart(again, [f"  br label %{first}"], (first,))

    def _follow(self, label: str) -> tuple[str, ...]:
        part = self._parts[label]
        return () if part.waits else part.after

    def _find_repeated(self) -> set[str]:
        """Return the values that parameters alone decide, by instructions that may be run again."""
        repeated: set[str] = set()
        for value, line in self._lines.items():
            if set(_NAME.findall(line.partition(" = ")[2])) & self._homes.keys() - repeated:
                continue
            if "%opcheck.here" in line or "%opcheck.in" in line:
                continue
            loaded = _LOADED.search(line)
            if loaded and self._root(loaded["place"]) not in self._constant:
                continue
            is_first = self._homes[value] == "entry" and _FIRST.search(line)
            if is_first or _PURE.search(line):
                repeated.add(value)
        return repeated

    def _root(self, place: str) -> str:
        """Return the parameter that an address begins with, or another value."""
        while " = getelementptr " in (line := self._lines.get(place, "")):
            base = re.search(rf"ptr ({_V})", line)
            place = base[1] if base else ""
        return place

    def functions(self) -> str:
        """Return the functions, and the one that calls them."""
        for _ in range(2):  # the second time each value of the frame is known
            loops = [self._function(start) for start in self._places]
        fields = ", ".join(["[32 x i32]", *(f"[32 x {self._stored_type(value)}]" for value in self._kept)])
        return "\n".join([fill("lanes.frame", fields=fields), *loops, self._dispatch()])

    def _stored_type(self, value: str) -> str:
        return "i8" if self._types[value] == "i1" else self._types[value]

    def _dispatch(self) -> str:
        """Return the function that threads.cpp calls."""
        loads = []
        for place, argument in enumerate(self._arguments):
            if argument.is_buffer:
                loads += lowering.load_pointer(place, argument)
        for number in range(lowering.NUMBERS):
            loads += lowering.load_number(number, number)
        passed = ", ".join([*_pointers(self._arguments), *_numbers(""), _PASSED])
        states = range(len(self._places))
        cases = " ".join(f"i32 {state}, label %at{state}" for state in states)
        calls = "\n".join(fill("lanes.call", state=state, passed=passed) for state in states)
        return fill("lanes.dispatch", own=_PASSED, loads="\n".join(loads), cases=cases, calls=calls)

    def _function(self, start: str) -> str:
        """Return the loop over the code from a place up to the next waits."""
        region = LoopRegion(self._parts, start)
        folds = list(dict.fromkeys(m["fold"] for line in region.lines if (m := _FOLD.match(line))))
        entry = [line for value, line in self._lines.items() if " = alloca " in line and value not in self._kept]
        entry += [
            f"  %opcheck.folded{place} = alloca [512 x i8], align 64\n"
            f"  call void {fold}(ptr %opcheck.in, i32 %opcheck.here, ptr %opcheck.folded{place})"
            for place, fold in enumerate(folds)
        ]
        again: set[str] = set()
        loads: dict[str, dict[str, None]] = {label: {} for label in region.before}

        def use(value: str, label: str) -> str:
            home = self._homes.get(value)
            is_memory = home is not None and " = alloca " in self._lines[value]
            if home is None or (is_memory and value not in self._kept):
                return value
            if not is_memory and (home == label or home in region.dominators[label]):
                return value
            if value in self._repeated:
                again.add(value)
                return f"{value}.again"
            self._kept.setdefault(value, len(self._kept))
            loads[label][value] = None
            return f"{value}.of.{label}"

        code = {label: list(self._part(self._parts[label], region, folds, use)) for label in loads}
        lines = []
        for label, (choices, body) in code.items():
            lines += [f"{label}:", *choices]
            for value in loads[label]:
                lines += self._address(value, f"{value}.of.{label}", f"{value}.at.{label}")
            lines += body
        for value in reversed(self._lines):
            if value in again:
                again |= set(_NAME.findall(self._lines[value])) & self._repeated
        repeated = [
            _NAME.sub(lambda m: f"{m[0]}.again" if m[0] in self._homes else m[0], line)
            for value, line in self._lines.items()
            if value in again
        ]
        pointers = [*_pointers(self._arguments), *_numbers("opcheck."), _PASSED]
        moving = (f"  %n{each} = add nuw i32 %opcheck.n{each}, %opcheck.off" for each in _MOVING)
        number = self._places[start]
        return fill(
            "lanes.loop",
            number=number,
            parameters=", ".join(each.replace("ptr", "ptr noalias") for each in pointers),
            entry="\n".join(entry),
            moving="\n".join(moving),
            repeated="\n".join(repeated),
            start=start,
            lines="\n".join(lines),
            ends=", ".join(f"[ {code}, %{label} ]" for label, code in region.ends.items()),
            own=number << 8 | _TURNS,
        )

    def _part(
        self, part: CodePart, region: LoopRegion, folds: list[str], use: Callable[[str, str], str]
    ) -> Iterator[list[str]]:
        """Return the lines of a part in a region: the choices by the part before, and the rest."""
        choices, stores, body = list[str](), list[str](), list[str]()
        for line in part.lines:
            if " = alloca " in line:
                continue
            match = _VALUE.match(line)
            if " = phi " in line:
                kept = [
                    f"[ {use(m['value'], m['before'][1:])}, {m['before']} ]"
                    for m in _CHOICE.finditer(line)
                    if m["before"][1:] in region.before[part.label]
                ]
                choices.append(f"{line.partition('[')[0]}{', '.join(kept)}")
            elif fold := _FOLD.match(line):
                at = folds.index(fold["fold"])
                body.append(f"  {fold['value']} = getelementptr i8, ptr %opcheck.folded{at}, i64 0")
            elif line in {"  ret void", "  unreachable"}:
                body.append(self._end(part, region, -1))
            else:
                start = len(match[0]) if match else 0
                code = _NAME.sub(lambda m: use(m[0], part.label), line[start:])
                body.append(line[:start] + code)
            if match and match["value"] in self._kept:
                (stores if " = phi " in line else body).extend(self._store(match["value"]))
        yield choices
        if part.waits:
            body += self._wait(part, region, use)
        yield [*stores, *body]

    def _end(self, part: CodePart, region: LoopRegion, code: int) -> str:
        """Return the line that ends a lane's turn."""
        region.ends[part.label] = code
        return "  br label %opcheck.latch"

    def _wait(self, part: CodePart, region: LoopRegion, use: Callable[[str, str], str]) -> list[str]:
        """Return the lines that leave what a lane exchanges, and end its turn."""
        size, lines, how = 0, list[str](), _TURNS
        if part.wait:
            how = _BARRIER if part.wait["name"] == "barrier" else _EXCHANGES
        if part.wait and part.wait["name"] == "exchange":
            slot, number = intrinsics.split(part.wait["arguments"])
            size = int(number.split()[-1])
            value = use(slot.split()[-1], part.label)
            lines = [fill("lanes.leave", label=part.label, size=size, value=value)]
        code = self._places[part.after[0]] << 8 | size << 2 | how
        return [*lines, self._end(part, region, code)]

    def _store(self, value: str) -> list[str]:
        place, stored = f"{value}.place", value
        lines = [self._pointer(value, place)]
        if self._types[value] == "i1":
            stored = f"{value}.byte"
            lines.append(f"  {stored} = zext i1 {value} to i8")
        return [*lines, f"  store {self._stored_type(value)} {stored}, ptr {place}"]

    def _pointer(self, value: str, name: str) -> str:
        field = f"ptr %opcheck.frame, i64 0, i32 {self._kept[value] + 1}, i64 %opcheck.wide"
        return f"  {name} = getelementptr %opcheck.kind, {field}"

    def _address(self, value: str, name: str, place: str) -> list[str]:
        """Return the lines that read a value of the frame, or take the place of memory."""
        if " = alloca " in self._lines[value]:
            return [self._pointer(value, name)]
        kind = self._types[value]
        if kind == "i1":
            return [
                self._pointer(value, place), f"  {place}.byte = load i8, ptr {place}",
                f"  {name} = trunc i8 {place}.byte to i1",
            ]  # fmt: skip
        return [self._pointer(value, place), f"  {name} = load {kind}, ptr {place}"]


class LoopRegion:
    """The parts from a place up to the next waits.

    Args:
        parts: of the body.
        start: the label of the first.
    """

    def __init__(self, parts: Mapping[str, CodePart], start: str) -> None:
        #: by part, those before it
        self.before: dict[str, list[str]] = {start: []}
        todo = [start]
        while todo:
            part = parts[todo.pop()]
            for after in () if part.waits else part.after:
                if after not in self.before:
                    todo.append(after)
                self.before.setdefault(after, []).append(part.label)
        #: what a lane does next, by the part that ends its turn
        self.ends: dict[str, int] = {}
        self.lines = [line for label in self.before for line in parts[label].lines]
        #: by part, those that each way to it goes through
        self.dominators = {label: set(self.before) for label in self.before} | {start: {start}}
        changes = True
        while changes:
            changes = False
            for label, sources in self.before.items():
                if label != start:
                    common = set.intersection(*(self.dominators[each] for each in sources)) | {label}
                    changes |= common != self.dominators[label]
                    self.dominators[label] = common


def _read_parts(lines: Sequence[str]) -> dict[str, CodePart]:
    """Return the parts of a body in their order."""
    parts: dict[str, CodePart] = {}
    ends: dict[str, str] = {}
    label, block, own = "entry", "entry", list[str]()
    for raw in lines:
        line = _METADATA.sub("", raw)
        if match := _LABEL.match(line):
            label = block = f"v{match['name']}" if match["name"].isdigit() else match["name"]
            own = []
        elif wait := _WAIT.match(line):
            after = f"opcheck.resumed{len(parts)}"
            parts[label] = CodePart(label, own, (after,), wait)
            label, own = after, []
            if wait["value"]:
                own.append(f"  {wait['value']} = getelementptr i8, ptr %opcheck.in, i64 0")
        elif call := _OWN.match(line):
            own.append(f"  {call['value']} = add i32 %opcheck.{call['name']}, 0")
        elif line.strip() and not _IDLE.search(line):
            own.append(line)
            if _ENDING.match(line):
                after_all = tuple(target[1:] for target in _TARGET.findall(line))
                parts[label] = CodePart(label, own, after_all)
                ends[f"%{block}"] = f"%{label}"
    for part in parts.values():
        part.lines[:] = [_rename_sources(line, ends) for line in part.lines]
    return parts


def _rename_sources(line: str, ends: Mapping[str, str]) -> str:
    """Let a choice name the last part of each block that comes before it."""
    if " = phi " not in line:
        return line
    return _CHOICE.sub(lambda match: f"[ {match['value']}, {ends[match['before']]} ]", line)
