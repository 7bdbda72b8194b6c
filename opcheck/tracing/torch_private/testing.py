"""PyTorch's operator database, which its own tests run through. Tried on 2.11 and 2.13."""

import importlib
from collections.abc import Iterable
from typing import Any


def operator_database() -> Iterable[Any]:
    """Return all ``OpInfo`` records.

    The import takes seconds and needs expecttest and scipy.

    Raises:
        ImportError: what the database needs in addition to torch is not installed.
    """
    module = importlib.import_module("torch.testing._internal.common_methods_invocations")
    return module.op_db
