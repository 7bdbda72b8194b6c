"""State the dtypes that a release's own Metal kernels were not built for.

Usage: python -m scripts.unbuilt_kernels

Where the code of an operator reaches compiled Metal kernels, and neither MPSGraph nor an operator that computes
(scripts/wheels/kernel_routes.py), a dtype that stands in the name of none of these kernels cannot run: the library has
no function of that name.  Left out is what other statements refuse, and what PyTorch's CI expects to pass.  The result
is op_lists/limitations/from_kernels.yaml.  Releases before 2.6 compile their kernels on the Mac and cannot be read so.
"""

import json
import re
import sys
from collections import Counter, defaultdict

from opcheck.common.files import write_text
from opcheck.common.versions import Version
from opcheck.data.kernel_routes import KernelRoutes
from opcheck.data.registrations import data_directory, load
from opcheck.kernels import library
from opcheck.lookup.plain_call import OperatorLookup, target
from scripts.cross_dtypes import expected
from scripts.opinfo.compare import lists_without
from scripts.pages import page_text
from scripts.refused_dtypes import DTYPES
from scripts.schema_bodies import overload_of
from scripts.wheels.extracted import spans
from scripts.wheels.kernel_routes import Route, bases, built, routes
from scripts.wheels.library import open_library

FILE = "limitations/from_kernels.yaml"
PREFIX = "unbuilt-"
#: The first release with compiled kernels.
_FIRST = Version(2, 6)
NO_FUNCTION = "Failed to create function state object for: {kernel}"

#: the overload, the text, the names of the kernels, and whether they take two tensors
Key = tuple[str, str, tuple[str, ...], bool]


def main() -> int:
    """Write the file."""
    lists = load()
    releases = [release for release in lists.releases if release.version >= _FIRST]
    cases: dict[tuple[Key, str], list[str]] = defaultdict(list)
    for release in releases:
        for op, route, dtypes in refused(release.torch, release.line):
            whole = [text for text in route.texts if text[0].isalpha()]
            text = whole[0] if len(whole) == 1 else NO_FUNCTION
            pairs = route.is_binary and len(arguments(op)) > 1
            for dtype in dtypes:
                cases[(op, text, route.kernels, pairs), dtype].append(release.line)
        print(f"{release.line}: {len(cases)} pairs", file=sys.stderr)
    write_text(data_directory() / FILE, file_text(cases, [each.line for each in releases]))
    return 0


def refused(release: str, line: str) -> list[tuple[str, Route, list[str]]]:
    """Return the operators of a release, the kernels that they reach, and the dtypes that these lack."""
    names = library.read(release).functions
    with open_library(release) as opened:
        found = routes(opened.image, names)
    lookup, aim, table = OperatorLookup(lists_without(PREFIX)), target(line, "15.0"), KernelRoutes(load())
    passing = {(op, dtype) for op, dtype, state, _ in expected(line) if state == "pass"}
    of_names = bases(names)
    rows = []
    for op, route in sorted(found.items()):
        # The reader leaves out short names, which the code joins from parts; routes.json has them.
        short = table.of_operators((op,), line).kernels
        there = built(route, of_names).union(*(of_names.get(name, ()) for name in short))
        dtypes = [
            dtype
            for dtype in DTYPES
            if dtype not in there
            and (op, dtype) not in passing
            and lookup.state(op, aim, dtype).status in ("native", "unknown")
        ]
        # Kernels without the usual dtype are helpers, such as a check of indices: the operator's own is not recognised.
        name = (arguments(op) or [""])[0]
        is_integral = "int64" in there and (
            name == "result"
            or any(kernel in op for kernel in route.kernels)
            or lookup.state(op, aim, "float32").status == "unsupported"
        )
        if dtypes and name and ("float32" in there or is_integral):
            rows.append((op, route, dtypes))
    return rows


def arguments(op: str) -> list[str]:
    """Return the tensors that the overload reads, or the result if there is none; nothing if the schema is unknown."""
    try:
        schema = overload_of(op)._schema  # noqa: SLF001 - its only description
    except (AttributeError, RuntimeError):
        return []
    tensors = [each.name for each in schema.arguments if "Tensor" in str(each.type) and not each.is_out]
    return tensors or ["result"]


def file_text(cases: dict[tuple[Key, str], list[str]], lines: list[str]) -> str:
    """Return the file: a statement for the dtypes of an operator's overloads that share a span."""
    rows: dict[tuple[Key, str, str | None], list[str]] = defaultdict(list)
    for (key, dtype), held in sorted(cases.items()):
        for since, until in spans(held, lines):
            rows[key, since, until].append(dtype)
    merged: dict[tuple[str, str, str | None, str], list[str]] = defaultdict(list)
    for ((op, text, kernels, pairs), since, until), dtypes in sorted(rows.items(), key=str):
        first, *others = arguments(op)
        ordered = ", ".join(dtype for dtype in DTYPES if dtype in dtypes)
        detail = f"the operator reaches no other code that computes than the compiled kernels {', '.join(kernels)}"
        base = op.removeprefix("aten::").partition(".")[0].rstrip("_")
        fields = f"""    dtypes: [{ordered}]
    dtypes_of: [{first}]
"""
        if pairs:
            # Of unlike dtypes, a kernel that casts computes in the dtype of the result.
            fields += f'    condition: "{others[0]}.dtype == {first}.dtype or result.dtype == {first}.dtype"\n'
        fields += f"""    error: {{type: RuntimeError, text: {json.dumps(text)}}}
    summary: The Metal kernels of {base} were not built for {ordered}.
    evidence:
      - {{kind: binary, torch: "{since}", where: "torch/lib/libtorch_cpu.dylib", detail: {json.dumps(detail)}}}
"""
        merged[base, since, until, fields].append(op)
    texts, taken = [page_text("unbuilt_kernels")], Counter[str]()
    for (base, since, until, fields), ops in merged.items():
        name = PREFIX + re.sub(r"[^a-z0-9]+", "-", base.lower()).strip("-")
        taken[name] += 1
        number = f"-{taken[name]}" if taken[name] > 1 else ""
        texts.append(f"""  - id: {name}{number}
    ops: {json.dumps(ops)}
    effect: raises
    torch: {{since: "{since}", until: {json.dumps(until)}}}
{fields}""")
    return "\n".join(texts)


if __name__ == "__main__":
    sys.exit(main())
