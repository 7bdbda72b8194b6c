"""The private names of PyTorch that opcheck uses: this package is the only place that touches them.

PyTorch has no public way to be a device that the machine does not have, to follow autograd, or to
see what Inductor generates. Each module here binds the private names of one concern, and the
docstring below a name states what the name is for and what happens in a release that lacks it:

- ``Required``: importing the module (or calling the function, where the import is lazy) raises
  ``UnsupportedTorchError``, which names the release and the missing name.
- ``Optional``: the name is ``None``, or the function does nothing; the docstring states what
degrades.

All names were tried on 2.13.0 by ``tests/tracing/test_torch_private.py``, and on 2.9.1 and 2.15.0
by ``scripts/test_installed_torch.py`` (2026-11-22); a docstring that names other releases states
where the source was read. The names are bound once, at import: nothing here is between the
dispatcher and the simulator.

- ``dispatch``: overloads, keys, kernels, dispatch modes, guards.
- ``tensors``: wrapper tensors, their metadata, views, printing, pickling; the engine of autograd and its nodes.
- ``backend``: the attributes that give Python the devices; they are replaced for a while.
- ``modules``: tables of ``torch.nn.Module``, graphs, TorchScript.
- ``trees``: nested arguments.
- ``export``: programs of ``torch.export``, fake tensors, PyTorch's operator database. Its imports are lazy.
- ``compilation``: Dynamo and Inductor. Its imports are lazy, so that a capture imports no compiler.

Private in effect, although no name is underscored, and tested by the tests of their rooms: the
layout of DLPack's capsules (``simulator/visible/storage.py``), of ``.pt2`` archives
(``capture/child/loading/pt2.py``), of
libc10's table of device guards (``features/compile/child/inductor_metal.py``) and of
``c10::metal::ErrorMessages`` (``features/compile/child/cpu_kernels.py``); ``HigherOrderOperator.py_kernels``
(``simulator/dispatch/routes.py``); ``Module.__call__``, ``threading.Thread.run``, ``autocast.__init__``,
``Tensor``'s methods and the constructors of ``torch``, which are replaced for a while.
"""

import contextlib
import pkgutil
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from opcheck.common.errors import UnsupportedTorchError, explain_errors


@contextlib.contextmanager
def require_names(feature: str) -> Iterator[None]:
    """Report a name that the block does not find: opcheck does not support this torch release.

    Args:
        feature: what opcheck cannot do without the names, as a phrase: ``following autograd``.

    Raises:
        UnsupportedTorchError: the block raised ImportError or AttributeError.
    """
    with explain_errors(
        (ImportError, AttributeError),
        f"torch {torch.__version__} lacks a private name that opcheck uses",
        context=feature,
        hint="install a torch release from 2.8 to 2.15, or a newer opcheck",
        kind=UnsupportedTorchError,
    ):
        yield


class AttributePlace(NamedTuple):
    """An attribute that is replaced for a while: ``replace_attributes([(*place, value)])``."""

    owner: Any
    name: str

    def value(self) -> Any:
        """Return the attribute's value at this moment."""
        return getattr(self.owner, self.name)

    def exists(self) -> bool:
        """Return whether the installed release has the attribute."""
        return hasattr(self.owner, self.name)


def place(owner: Any, name: str) -> AttributePlace:
    """Return the attribute of the owner.

    Raises:
        AttributeError: there is none of that name.
    """
    getattr(owner, name)
    return AttributePlace(owner, name)


def lazily(path: str, feature: str) -> Any:
    """Return the object at ``package.module:attribute``, imported now.

    Raises:
        UnsupportedTorchError: there is no such module or attribute.
    """
    with require_names(feature):
        return pkgutil.resolve_name(path)
