"""Sets training or evaluation mode, and refuses programs that were fixed in their mode."""

from __future__ import annotations

import types
from typing import Any

import torch

from opcheck.common.errors import ModelLoadError


def set_training(model: torch.nn.Module, name: str, *, training: bool) -> None:
    """Put the model in training or in evaluation mode; an exported program stays as it is.

    Args:
        model: a module, which may hold exported programs and TorchScript.
        name: what the report calls the model.
        training: the mode.

    Raises:
        ModelLoadError: training is requested, and a part of the model can only be run for inference.
    """
    if training:
        refuse_fixed(model, name)
    for module in model.modules():
        if is_exported(module):
            # Its own raises, also where the module around it calls it.
            module.train = types.MethodType(_keep, module)  # type: ignore[method-assign]
    if not _is_frozen(model):
        model.train(training)


def refuse_fixed(model: torch.nn.Module, name: str) -> None:
    """Refuse a model that cannot be trained.

    Raises:
        ModelLoadError: a part of it is an exported program or a TorchScript module.
    """
    for path, module in model.named_modules():
        kind = _kind(module)
        if kind:
            raise ModelLoadError(
                f"{_ARTICLES[kind]} is audited for inference only, not for training",
                context=f"model {name}" + (f", module {path}" if path else ""),
                hint="to train, name the torch.nn.Module that it was made from, as file.py:attribute",
            )


def fixed(model: torch.nn.Module) -> str:
    """Return the first kind of program in the model that was fixed before: one of request.FIXED, or empty."""
    return next(filter(None, map(_kind, model.modules())), "")


def is_exported(module: torch.nn.Module) -> bool:
    """Return whether ``ExportedProgram.module()`` made it.

    Its ``train`` raises NotImplementedError (torch/export/exported_program.py, 2.8 to 2.15).
    """
    train = vars(module).get("train")
    return getattr(train, "__module__", "") in ("torch.export.exported_program", __name__)


_ARTICLES = {"exported program": "an exported program", "TorchScript": "a TorchScript module"}


def _kind(module: torch.nn.Module) -> str:
    if is_exported(module):
        return "exported program"
    return "TorchScript" if isinstance(module, torch.jit.ScriptModule) else ""


def _is_frozen(module: torch.nn.Module) -> bool:
    """Return whether torch.jit.freeze took the mode out of it."""
    return isinstance(module, torch.jit.ScriptModule) and not hasattr(module, "training")


def _keep(module: Any, _mode: bool = True) -> Any:  # noqa: FBT001, FBT002  (as nn.Module.train)
    return module
