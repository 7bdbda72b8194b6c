"""Parse a wheel's native_functions.yaml with its own torchgen, in a separate process.

Usage: python -I torchgen_child.py TREE, where TREE contains only the wheel's ``torchgen`` folder.
The process prints a JSON object: overload -> the facts that the dispatcher's names lack.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

_KEYS = ("MPS", "SparseMPS", "SparseCsrMPS")


def main(tree: Path) -> None:
    """Write the facts of the wheel below ``tree`` to stdout."""
    # This interpreter's torch is another release; torchgen must never import it.
    sys.modules["torch"] = None  # type: ignore[assignment]
    sys.path.insert(0, str(tree))
    # Imported here because sys.path now leads to the wheel's own torchgen.
    gen = importlib.import_module("torchgen.gen")
    model = importlib.import_module("torchgen.model")

    native = tree / "torchgen/packaged/ATen/native"
    parsed = gen.parse_native_yaml(str(native / "native_functions.yaml"), str(native / "tags.yaml"))
    keys = [key for key in _KEYS if key in model.DispatchKey.__members__]
    indices = {key: parsed.backend_indices.get(model.DispatchKey[key]) for key in keys}
    facts: dict[str, dict[str, Any]] = {}
    for function in parsed.native_functions:
        facts[_name(function)] = {
            "generated": "generated" in function.tags,
            "keys": [k for k, index in indices.items() if index and index.get_kernel(function)],
        }
    for group in gen.get_grouped_native_functions(parsed.native_functions):
        if isinstance(group, model.NativeFunctionsGroup):
            _add_structured(group, indices, facts)
            _add_generated(group, facts)
    json.dump(facts, sys.stdout)


def _add_structured(group: Any, indices: dict[str, Any], facts: dict[str, dict[str, Any]]) -> None:
    for function in group.functions():
        if function.structured_delegate is None:
            continue
        fact = facts[_name(function)]
        fact["out"] = _name(group.out)
        for key, index in indices.items():
            kernel = index and index.get_kernel(group.out)
            # An unstructured kernel on the .out is not shared with the other forms:
            # aten::addmm_ has no SparseMPS kernel though aten::addmm.out has one (2.10 on).
            if kernel and kernel.structured and key not in fact["keys"]:
                fact["keys"].append(key)


def _add_generated(group: Any, facts: dict[str, dict[str, Any]]) -> None:
    """Return the form that a generated wrapper calls.

    torchgen/native_function_generation.py: gen_composite_functional_kernel, gen_composite_out_kernel.
    """
    functional, mutating = group.functional, (group.inplace, group.mutable)
    if "generated" in functional.tags:
        written = [f for f in mutating if f is not None and "generated" not in f.tags]
        facts[_name(functional)]["base"] = _name(written[0])
    for function in (group.out, *mutating):
        if function is not None and "generated" in function.tags:
            facts[_name(function)]["base"] = _name(functional)


def _name(function: Any) -> str:
    return f"aten::{function.func.name}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
