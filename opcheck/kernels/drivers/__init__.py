"""Calls kernels of whole families as PyTorch's host side calls them, a file for each kind of them.

Importing the package registers the functions of all its files (``family`` of launch.py).
"""

import pkgutil
from importlib import import_module

from opcheck.kernels.launch import FAMILIES, is_driven, judge, launches

__all__ = ["FAMILIES", "is_driven", "judge", "launches"]

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
