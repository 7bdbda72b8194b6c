"""The values of names on a Mac, and what torch.cuda does in a build without CUDA: ``names.toml``."""

from pathlib import Path

from opcheck.common import documents
from opcheck.common.versions import Target, Version

_TABLES = documents.from_toml(documents.read_text(Path(__file__).with_name("names.toml")))


def read_table(name: str) -> dict[str, str]:
    """Return a table of texts by name."""
    return dict(_TABLES[name])


def read_words(name: str, table: str = "words") -> frozenset[str]:
    """Return a set of names."""
    return frozenset(_TABLES[table][name].split())


def read_lists(table: str) -> dict[str, str]:
    """Return the key by each of the words that the table has for it."""
    return {word: key for key, text in _TABLES[table].items() for word in text.split()}


ON_A_MAC: dict[str, object] = {**_TABLES["on_a_mac"], "torch.version.cuda": None, "torch.version.hip": None}
NOT_ON_A_MAC = read_words("not_on_a_mac")
IMPORT_ERRORS, CUDA_ERRORS = read_words("import_errors"), read_words("cuda_errors")
ON_MPS = read_words("on_mps")
IDLE, RAISES, INSTEAD = read_table("idle"), read_table("raises"), read_table("instead")
NOT_COMPILED = RAISES["init"]


def find_error(name: str, target: Target) -> str:
    """Return the error of a name in torch.cuda; empty where it depends on the arguments.

    torch/cuda/streams.py of the wheels: ``Stream.__new__`` checks for CUDA itself since 2.10.
    """
    if name == "Stream" and target.torch >= Version(2, 10):
        return "RuntimeError: torch.cuda.Stream requires CUDA support"
    return RAISES[name]
