"""Which operators two releases decompose or lower by other texts."""

from __future__ import annotations

from pathlib import Path

from opcheck.features.compile.compile_process import _rules, differing

LOWERING = '''
@register_lowering(aten.relu)
def relu(x):
    """Says something."""
    return ops.maximum(x, 0)

register_pointwise(aten.exp, name="exp")
make_fallback(torch.ops.aten.topk)
DECOMPOSED = [aten.a, aten.b, aten.c, aten.d, aten.e]
'''


def written(folder: Path, text: str) -> Path:
    file = folder / "torch" / "_inductor" / "lowering.py"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return folder


def test_a_rule_is_compared_by_its_body_and_not_by_its_docstring(tmp_path: Path) -> None:
    before = _rules(written(tmp_path / "a", LOWERING))
    after = _rules(
        written(
            tmp_path / "b",
            LOWERING.replace("something", "more").replace('name="exp"', 'name="e"').replace("aten.b, ", ""),
        )
    )
    names = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert names == {"exp", "b"}
    assert {"relu", "topk"} <= before.keys()


def test_only_the_operators_of_the_program_are_named(tmp_path: Path) -> None:
    folder = written(tmp_path, LOWERING)
    assert differing(str(folder), ["relu", "no_such_operator"]) == ("relu",)
    assert differing("", ["relu"]) == ()
