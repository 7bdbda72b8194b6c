"""Finds the model that a name means, and builds it without memory for its weights."""

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from opcheck.capture.child.build import OnMps, building, fill_meta, take_default_device
from opcheck.capture.child.extensions import prepare_torchaudio, prepare_torchvision
from opcheck.capture.child.loading import fixed_programs, libraries, model_archive, pretrained, pt2, user_code
from opcheck.capture.naming import no_model, working_place
from opcheck.capture.repository import Repository, fetch, is_repository
from opcheck.capture.word_lists import TABLES
from opcheck.common.errors import ModelLoadError, OpcheckError
from opcheck.common.files import describe_missing, is_file
from opcheck.common.names import parse_dtype
from opcheck.common.text import error_text, type_and_text
from opcheck.tracing.source_locations import describe_raise
from opcheck.worker.environments import distribution_version

T = TypeVar("T")

#: Most bytes of weights for a real run of a constructor that needs their values.
REAL_LIMIT = 1 << 31

#: Packages whose versions a reader of the report may need, where the run imported them.
PACKAGES: tuple[str, ...] = tuple(TABLES["packages"])

#: by PyPI, for macosx_14_0_arm64 and Python 3.11 in November 2026; those that a Mac cannot build either are in
#: op_lists/packages.yaml
_NO_WHEEL = frozenset({"torch_scatter"})

Arguments = user_code.Arguments


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model, ready to be called."""

    model: Callable[..., Any]
    #: positional and keyword arguments that came with the model.
    inputs: Arguments | None
    #: transformers, timm, torchvision, diffusers, export or user: the source of its inputs.
    family: str
    packages: dict[str, str]
    #: an exported program whose tensors were on an accelerator.
    accelerated: bool = False
    #: the module whose ``forward`` takes the inputs, where it is not the model itself.
    takes_inputs: torch.nn.Module | None = None
    #: what makes inputs of pictures or sound, and objects of outputs; None: nothing is known.
    processor: Any = None
    #: where the inputs come from, if that is not the model.
    note: str = ""
    #: whether the library states what its users call the model for.
    as_used: bool = False
    #: what the program has put on ``mps``, wherever it keeps it.
    on_mps: tuple[torch.Tensor, ...] = ()
    #: what the program has set by ``torch.set_default_device``, if that is ``mps``; here it is taken back.
    default_device: torch.device | None = None


def load(
    spec: str,
    config: Mapping[str, Any] | None = None,
    *,
    dtype: str = "",
    real: bool = False,
    repository: Repository | None = None,
) -> Loaded:
    """Return the model that ``spec`` names, its large weights on the meta device.

    Args:
        spec: ``package.module:attribute``, ``file.py:attribute``, ``file.pt2``,
            ``transformers:Class``, ``timm:name``, ``torchvision:name`` or ``diffusers:Class``, or what
            ``repository.is_repository`` takes.  The
            attribute is a module, a class of one, a function that returns one or one and its inputs,
            or a function of tensors.
        config: keyword arguments of the library's configuration, of the class or of the function.
        dtype: what floating parameters and buffers are cast to; empty leaves them.
        real: build it with its weights, as its constructor initializes them.
        repository: what was read of a model on a hub or in a folder.

    Raises:
        ModelLoadError: nothing of that name, or it could not be imported or built.
        UsageError: no dtype has that name.
    """
    if spec.endswith((".py", ".ipynb")):
        spec += ":"  # a file without an attribute: the model that it builds
    try:
        return _load(spec, dict(config or {}), dtype=dtype, real=real, repository=repository)
    except ModelLoadError as error:
        error.context = error.context or working_place(spec)
        raise


def _load(spec: str, config: dict[str, Any], *, dtype: str, real: bool, repository: Repository | None) -> Loaded:
    model: Callable[..., Any]
    inputs: Arguments | None = None
    facts: dict[str, Any] = {}
    number = getattr(torch, parse_dtype(dtype)) if dtype else None
    prepare_torchvision()
    prepare_torchaudio()
    on_mps = OnMps()
    described = repository or (fetch(spec) if is_repository(spec) else None)
    prefix, colon, name = spec.partition(":")
    if described is not None:
        built = _construct(functools.partial(pretrained.build, described, config, number), spec, on_mps, real=real)
        facts = {"takes_inputs": built.takes_inputs, "processor": built.processor, "as_used": True}
        model, inputs = built.model, built.inputs
    elif colon and prefix in libraries.LOADERS:
        library = libraries.find(prefix, spec)
        model = _construct(lambda: libraries.build(prefix, library, name, config, number), spec, on_mps, real=real)
        facts["as_used"] = prefix == "transformers"
    elif spec.endswith(".pt2"):
        module, inputs, facts["accelerated"] = _load_exported(spec, real=real)
        model = module if number is None else module.to(number)
    elif colon:
        model, inputs = _construct(lambda: user_code.load(spec, config), spec, on_mps, real=real)
        if number is not None and isinstance(model, torch.nn.Module):
            model = model.to(number)
        if not name and inputs is not None:
            facts["note"] = f"as the file first calls its {type(model).__name__}"
    else:
        raise no_model(spec)
    return as_loaded(model, inputs, on_mps=on_mps.list_marked(), default_device=take_default_device(), **facts)


def as_loaded(model: Callable[..., Any], inputs: Arguments | None, **facts: Any) -> Loaded:
    """Return a model that is there already, with its arguments, if they are known, and other fields by name."""
    family = libraries.family(facts.get("takes_inputs") or model)
    return Loaded(model=model, inputs=fill_meta(inputs), family=family, packages=_packages(), **facts)


def _construct(make: Callable[[], T], spec: str, on_mps: OnMps, *, real: bool) -> T:
    """Build without memory; a constructor that looks into its weights is run again, for real."""
    try:
        if real:
            with torch.random.fork_rng(devices=()):
                torch.manual_seed(0)
                return make()
        try:
            with building(on_mps) as mode:
                return make()
        except RuntimeError as error:
            # "Tensor.item() cannot be called on meta tensors", "Cannot copy out of meta tensor" ...
            if "meta" not in error_text(error) or not 0 < mode.avoided <= REAL_LIMIT:
                raise
            with on_mps:
                return make()
    except OpcheckError:
        raise
    except SystemExit as error:
        raise ModelLoadError(
            f"importing {spec} ends the process (exit code {error.code})",
            context=describe_raise(error),
            hint='put what a script does under: if __name__ == "__main__":',
        ) from error
    except Exception as error:
        raise ModelLoadError(
            f"building {spec} raises {type_and_text(error)}", context=describe_raise(error), hint=hint_for(error)
        ) from error


def hint_for(error: Exception) -> str:
    """Return the hint for an error of building a model."""
    if isinstance(error, OpcheckError):
        return error.hint
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        if package in _NO_WHEEL:
            return f"PyPI has no wheel of {package} for macOS: a Mac has to do without it, or to build it"
        return f"pip install {package}"
    if isinstance(error, ImportError) and error.name:
        return f"the installed {error.name} is not the version that the code expects"
    if isinstance(error, ImportError):
        return "install the package that the message names"
    if isinstance(error, TypeError) and "argument" in error_text(error):
        return "give its arguments, --config NAME=VALUE, or name a function that returns the model"
    if isinstance(error, SyntaxError):
        return f"Python {sys.version_info.major}.{sys.version_info.minor} cannot read that line"
    return "the constructor has to run on the CPU, without weights, before the model can be audited"


def _load_exported(spec: str, *, real: bool) -> tuple[torch.nn.Module, Arguments, bool]:
    """Return the module of a program in a file, its inputs, and whether it was on an accelerator."""
    if not is_file(Path(spec)):
        raise ModelLoadError(describe_missing(spec), hint="torch.export.save() writes one")
    program, accelerated = pt2.read(spec, real=real)
    try:
        return fixed_programs.as_module(program), fixed_programs.arguments(program), accelerated
    except Exception as error:
        raise model_archive.make_damaged_error(spec, type_and_text(error)) from error


def _packages() -> dict[str, str]:
    versions = {name: distribution_version(name) for name in PACKAGES if name in sys.modules}
    return {name: version for name, version in versions.items() if version}
