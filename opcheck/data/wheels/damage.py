"""The errors of wheels: what can be wrong, and what to do (damage.yaml)."""

from opcheck.common.errors import OpListError
from opcheck.common.yaml_text import load_shipped

_TABLE: dict[str, dict[str, str]] = load_shipped(__file__, "damage.yaml")


def damage(name: str, context: str, /, **fields: object) -> OpListError:
    """Return the error of this name in damage.yaml, with fields for its message."""
    return OpListError(_TABLE[name]["message"].format(**fields), context=context, hint=_TABLE[name]["hint"])
