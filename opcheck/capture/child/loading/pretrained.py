"""Builds the model that a repository describes, from its configuration alone, in the dtype of its weights."""

import contextlib
import importlib
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from opcheck.capture.child.loading import libraries
from opcheck.capture.child.recipes import pipelines
from opcheck.capture.repository import DamagedError, Repository
from opcheck.common import documents, sanitize
from opcheck.common.errors import ModelLoadError, UsageError
from opcheck.common.files import inside
from opcheck.common.replacing import replace_attributes
from opcheck.common.text import error_text, one_line

Config = dict[str, Any]

#: safetensors' names of the dtypes that a model computes in.
_FLOATING = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}
#: Settings for a checkpoint whose tensors are stored in another form than the model's layers.
_QUANTIZATION = "quantization_config"


class Built(NamedTuple):
    """A model, and how its repository calls it."""

    model: nn.Module
    #: the module whose ``forward`` takes the inputs, where it is not the model itself
    takes_inputs: nn.Module | None = None
    #: positional and keyword arguments; None: they are derived
    inputs: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    #: what makes inputs of pictures or sound, and objects of outputs
    processor: Any = None


class _Files(NamedTuple):
    """A repository and the folder that its files were written to."""

    repository: Repository
    folder: Path

    def settings(self, name: str) -> dict[str, Any]:
        return self.repository.settings(name)

    def library(self, name: str, package: str = "") -> Any:
        return libraries.find(name, self.repository.name, package)

    def find_class(self, library: Any, name: str, method: str = "__init__") -> Any:
        """Return the class of a library that has the method.

        Raises:
            ModelLoadError: there is none of that name.
        """
        kind = _class_named(library, name, method)
        if kind is None:
            raise self.unknown(library, name)
        return kind

    def unknown(self, library: Any, name: str) -> ModelLoadError:
        family = library.__name__.replace("_", "-")
        return ModelLoadError(
            f"{family} {library.__version__} has no {sanitize.one_line(name)[:80]}",
            context=f"configuration of {self.repository.name}",
            hint=f"install the {family} version that the model's page requires",
        )

    def dtype(self, component: str, settings: Config) -> torch.dtype:
        """Return the dtype of most floating weights; without headers the dtype in the configuration."""
        stated = str(settings.get("dtype") or settings.get("torch_dtype") or "").removeprefix("torch.")
        in_settings = getattr(torch, stated, None)
        elements = next((each.elements for each in self.repository.weights if each.folder == component), {})
        floating = {name: count for name, count in elements.items() if name in _FLOATING}
        if _QUANTIZATION in settings and isinstance(in_settings, torch.dtype):
            return in_settings
        if floating:
            return _FLOATING[max(floating, key=floating.__getitem__)]
        return in_settings if isinstance(in_settings, torch.dtype) else torch.float32


def build(repository: Repository, config: Config, dtype: torch.dtype | None) -> Built:
    """Return the model without its weights.

    Args:
        repository: what was read of it.
        config: settings that take the place of the configuration's.
        dtype: of floating weights; None: as the headers of the weights say, else the configuration.

    Raises:
        ModelLoadError: its library is not installed, or does not know it.
        Exception: whatever its constructor raises.
    """
    with _unpack(repository) as folder, _without_files_of_others(trusted=repository.trusted):
        return _BUILDERS[repository.kind](_Files(repository, folder), config, dtype)


@contextlib.contextmanager
def _without_files_of_others(*, trusted: bool) -> Iterator[None]:
    """Refuse what a configuration makes libraries read: weights, and code unless it is trusted.

    ``checkpoint_path`` of a timm model is such a file; a second Transformer in modules.json of sentence-transformers
    can name another folder, and trust its code (release 6.2.0).
    """

    def refuse(*_arguments: Any, **_options: Any) -> Any:
        raise ModelLoadError(
            "the configuration makes its library load weights or code from another file",
            context="opcheck reads configurations alone",
            hint="remove that setting; --trust-remote-code lets code of a repository run",
        )

    loaders = [sys.modules[name] for name in _CODE_LOADERS if name in sys.modules and not trusted]
    with replace_attributes([(torch, "load", refuse), *((each, "get_class_in_module", refuse) for each in loaders)]):
        yield


#: Modules of libraries that load every class from a repository's own code.
_CODE_LOADERS = ("transformers.dynamic_module_utils", "diffusers.utils.dynamic_modules_utils")


_FOLDER = re.compile(r"[A-Za-z0-9_][\w.-]{0,99}")


@contextlib.contextmanager
def _unpack(repository: Repository) -> Iterator[Path]:
    """Write the files to a folder that the libraries read, and remove it at the end.

    Not by TemporaryDirectory: that lists the folder by its descriptor, which a cached report could not be checked for
    (worker/dependency_tracking.py).
    """
    last = repository.name.rpartition("/")[2]
    scratch = Path(tempfile.mkdtemp(prefix="opcheck-"))
    # Libraries name what they import by the folder; "." and ".." are no names.
    folder = inside(scratch, last if _FOLDER.fullmatch(last) else "model")
    try:
        paths = [inside(folder, name) for name in repository.files]
    except UsageError as error:
        scratch.rmdir()
        raise repository.damaged(repository.kind, error.message) from error
    folders = list(dict.fromkeys((*(path.parent for path in paths), folder, scratch)))
    try:
        for path, name in zip(paths, repository.files, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(repository.text(name), encoding="utf-8")
        yield folder
    finally:
        for path in paths:
            path.unlink(missing_ok=True)
        for each in sorted(folders, key=lambda each: -len(each.parts)):
            # Code of the repository may have left something there.
            with contextlib.suppress(OSError):
                each.rmdir()


# -- one model --------------------------------------------------------------------------------------------------------


def _single(files: _Files, config: Config, dtype: torch.dtype | None) -> Built:
    """Build the model of a config.json: of diffusers, timm or transformers."""
    settings = files.settings("config.json")
    if "_class_name" in settings:
        model = _of_diffusers(files, "config.json", config)
        return Built(libraries.cast(model, dtype or files.dtype("", settings)))
    if "architecture" in settings and "model_type" not in settings:
        return Built(_of_timm(files, settings, config, dtype))
    model = _of_transformers(files, files.folder, config, dtype)
    return Built(model, processor=_processor(files, model))


def _of_diffusers(files: _Files, path: str, config: Config, name: str = "") -> nn.Module:
    """Build what a configuration of diffusers describes; ``name`` is its class, where a pipeline names another."""
    library = files.library("diffusers")
    settings = files.settings(path)
    name = name or str(settings.get("_class_name"))
    kind = files.find_class(library, name, "from_config")
    if issubclass(kind, library.DiffusionPipeline):
        raise files.unknown(library, name)
    return kind.from_config({**settings, **config})


def _of_timm(files: _Files, settings: Config, config: Config, dtype: torch.dtype | None) -> nn.Module:
    library = files.library("timm")
    name = str(settings["architecture"])
    if not library.is_model(name):
        raise files.unknown(library, name)
    own = {"num_classes": settings["num_classes"]} if "num_classes" in settings else {}
    arguments = {**own, **(settings.get("model_args") or {}), **config}
    overlay = settings.get("pretrained_cfg")
    model: nn.Module = library.create_model(name, pretrained=False, pretrained_cfg_overlay=overlay, **arguments)
    return model.to(dtype or files.dtype("", settings))


def _of_transformers(
    files: _Files, folder: Path, config: Config, dtype: torch.dtype | None, *, automatic: str = "AutoModel"
) -> nn.Module:
    """Build a model of transformers.

    Args:
        files: the repository.
        folder: its folder with the config.json.
        config: settings that take the place of the configuration's.
        dtype: of floating weights; None: that of its weights.
        automatic: the automatic class that chooses a class where the configuration names none; empty: by name.
    """
    library = files.library("transformers")
    component = folder.relative_to(files.folder).as_posix().removeprefix(".")
    raw = files.settings(f"{component}/config.json".removeprefix("/"))
    remote = raw.get("auto_map") or {}
    if not isinstance(remote, dict):
        raise files.repository.damaged("config.json", "auto_map is no mapping")
    trusted = files.repository.trusted
    if remote and not trusted and not _is_known(library, raw):
        raise ModelLoadError(
            f"{files.repository.name} needs Python code of its own repository",
            context=f"config.json names {', '.join(sorted(map(str, remote.values())))[:200]}",
            hint="read that code; --trust-remote-code downloads and runs it on this machine with your rights",
        )
    try:
        settings = library.AutoConfig.from_pretrained(folder, trust_remote_code=trusted, **config)
    except ValueError as error:
        raise ModelLoadError(
            f"transformers {library.__version__} cannot read the configuration of {files.repository.name}: "
            f"{one_line(error)[:300]}",
            context=f"model_type {raw.get('model_type', '(none)')}",
            hint="install the transformers version that the model's page requires",
        ) from error
    # The layers are those of the model before it was quantized; a finding states what the method needs on a Mac.
    if hasattr(settings, _QUANTIZATION):
        delattr(settings, _QUANTIZATION)
    if getattr(settings, "use_pretrained_backbone", False):
        settings.use_pretrained_backbone = False  # its weights would be downloaded
    kind = _class(files, library, raw, settings, folder, automatic)
    settings.dtype = dtype or files.dtype(component, raw)
    model: nn.Module = kind._from_config(settings)
    if (folder / "generation_config.json").is_file():
        with contextlib.suppress(ValueError, OSError):
            model.generation_config = library.GenerationConfig.from_pretrained(folder)
    return model


def _is_known(library: Any, raw: Config) -> bool:
    """Return whether transformers itself has the model type and the class."""
    names = raw.get("architectures") or []
    return raw.get("model_type") in library.CONFIG_MAPPING and all(hasattr(library, str(name)) for name in names)


def _class(files: _Files, library: Any, raw: Config, settings: Any, folder: Path, automatic: str) -> Any:
    """Return the class of the model: the class that the configuration names, else the automatic class for its type."""
    stated = raw.get("architectures") or []
    if not isinstance(stated, list):
        raise files.repository.damaged("config.json", "architectures is no list of names")
    names = [str(name) for name in stated] if automatic == "AutoModel" else []
    remote: dict[str, str] = raw.get("auto_map") or {}
    if files.repository.trusted and remote and not _is_known(library, raw):
        dynamic = importlib.import_module("transformers.dynamic_module_utils")
        reference = next(
            (value for key, value in remote.items() if value.rpartition(".")[2] in names),
            next((value for key, value in remote.items() if key.startswith("AutoModel")), ""),
        )
        return dynamic.get_class_from_dynamic_module(reference, folder)
    if names:
        kinds = (_class_named(library, name, "_from_config") for name in names)
        return next(filter(None, kinds), None) or files.find_class(library, names[0], "_from_config")
    mapping = importlib.import_module("transformers.models.auto.modeling_auto").MODEL_MAPPING
    try:
        kind = mapping[type(settings)]
    except KeyError:
        raise files.unknown(library, type(settings).__name__) from None
    return kind[0] if isinstance(kind, (tuple, list)) else kind


def _class_named(library: Any, name: str, method: str = "__init__") -> Any:
    """Return a class of a library that has the method; None: it has none of that name."""
    kind = getattr(library, name, None)
    return kind if isinstance(kind, type) and hasattr(kind, method) else None


def _processor(files: _Files, model: nn.Module) -> Any:
    """Return the image processor or feature extractor of a repository; None: it has none that can be built."""
    if "preprocessor_config.json" not in files.repository.files:
        return _usual_processor(model)
    library = importlib.import_module("transformers")
    settings = files.settings("preprocessor_config.json")
    kinds = [library.AutoImageProcessor, library.AutoFeatureExtractor]
    if settings.get("feature_extractor_type") and not settings.get("image_processor_type"):
        kinds.reverse()
    for kind in kinds:
        with contextlib.suppress(Exception):  # a library's code; the inputs are derived without it
            return kind.from_pretrained(files.folder)
    return None


def _usual_processor(model: nn.Module) -> Any:
    """Return the image processor of the model's type with its default settings."""
    config: Any = getattr(model, "config", None)
    if getattr(model, "main_input_name", "") != "pixel_values" or config is None:
        return None
    with contextlib.suppress(Exception):  # a library's code; the inputs are derived without it
        table = importlib.import_module("transformers.models.auto.image_processing_auto")
        kinds = table.IMAGE_PROCESSOR_MAPPING[type(config)]
        kinds = kinds.values() if isinstance(kinds, dict) else kinds
        return next(kind for kind in kinds if kind is not None)()
    return None


# -- models of several parts ------------------------------------------------------------------------------------------


def _pipeline(files: _Files, config: Config, dtype: torch.dtype | None) -> Built:
    """Build a pipeline of diffusers: each component from its own configuration, tokenizers without their words.

    A component that cannot be built, for want of a package say, leaves the others to be judged each by itself.

    Raises:
        ModelLoadError: a file is damaged.
        Exception: what building the first component raised, if no other component is a model.
    """
    library = files.library("diffusers")
    index = files.settings("model_index.json")
    name = str(index.get("_class_name"))
    dtype = dtype or _common_dtype(files.repository)
    components: Config = {}
    failures: dict[str, Exception] = {}
    for component, value in index.items():
        if component.startswith("_") or not component.isidentifier():
            continue
        if not isinstance(value, list):
            components[component] = value
            continue
        with _keep_failure(failures, component):
            components[component] = _component(files, component, value, dtype)
    pipeline = None
    if not failures:
        with _keep_failure(failures, name):
            kind = files.find_class(library, name)
            if not issubclass(kind, library.DiffusionPipeline):
                raise files.unknown(library, name)
            pipeline = kind(**{**components, **config})
    models = pipeline.components if pipeline is not None else components
    if failures and not any(isinstance(each, nn.Module) for each in models.values()):
        raise next(iter(failures.values()))
    model = pipelines.PipelineModel(pipeline, models, failures)
    arguments = {} if pipeline is None else pipelines.arguments(pipeline)
    return Built(model, inputs=((), arguments))


@contextlib.contextmanager
def _keep_failure(failures: dict[str, Exception], name: str) -> Iterator[None]:
    """Keep what the block raises under a name, unless a file is damaged or the model has to be built with memory."""
    try:
        yield
    except DamagedError:
        raise
    except Exception as error:  # a library's code
        if isinstance(error, RuntimeError) and "meta" in error_text(error):
            raise  # load._construct builds it once more
        failures[name] = error


def _common_dtype(repository: Repository) -> torch.dtype:
    """Return the dtype of most weights of a pipeline: its users load all components in the same dtype."""
    counts = sum((Counter(each.elements) for each in repository.weights), Counter[str]())
    counts = Counter({name: count for name, count in counts.items() if name in _FLOATING})
    return _FLOATING[counts.most_common(1)[0][0]] if counts else torch.float32


def _component(files: _Files, name: str, value: list[Any], dtype: torch.dtype) -> Any:
    """Build one component of a pipeline: a model, a scheduler, a tokenizer or a processor; None: it has none."""
    module, kind = (*value, None, None)[:2]
    if kind is None:
        return None
    if not (isinstance(module, str) and isinstance(kind, str) and kind.isidentifier()):
        raise files.repository.damaged("model_index.json", f"{name} names no class")
    if "Tokenizer" in kind:
        return pipelines.tokenizer(files.settings(f"{name}/tokenizer_config.json"))
    scheduler, config = f"{name}/scheduler_config.json", f"{name}/config.json"
    # diffusers 0.42.1 takes the class of model_index.json (pipeline_loading_utils.py, load_sub_model).
    indexed = kind if module == "diffusers" else ""
    if scheduler in files.repository.files:
        return _of_diffusers(files, scheduler, {}, indexed)
    settings = files.settings(config)
    if module == "diffusers" and not settings:
        raise files.repository.damaged("model_index.json", f"there is no {config}")
    if module == "diffusers" or "_class_name" in settings:
        result: Any = _of_diffusers(files, config, {}, indexed)
        return libraries.cast(result, dtype) if isinstance(result, nn.Module) else result
    folder = files.folder / name
    library = files.library("transformers")
    if settings:
        if hasattr(library, kind):
            return _of_transformers(files, folder, {"architectures": [kind]}, dtype)
        return _of_the_pipeline(files, module, kind, folder, dtype)
    processor = _class_named(library, kind)
    return pipelines.processor(processor, library, folder) if folder.is_dir() else None


def _of_the_pipeline(files: _Files, module: str, kind: str, folder: Path, dtype: torch.dtype) -> nn.Module:
    """Build a model whose class a pipeline of diffusers brings itself, such as its safety checker."""
    try:
        model_class = _class_named(importlib.import_module(f"diffusers.pipelines.{module}"), kind)
    except ImportError:
        model_class = None
    if model_class is None:
        raise files.unknown(files.library("diffusers"), kind)
    settings = model_class.config_class.from_pretrained(folder)
    settings.dtype = dtype
    return model_class._from_config(settings)


class Embedder(nn.Module):
    """A model of sentence-transformers: what a transformer makes of tokens, pooled to one vector a text."""

    def __init__(self, transformer: nn.Module, rest: list[nn.Module]) -> None:
        super().__init__()
        self.transformer = transformer
        self.rest = nn.ModuleList(rest)

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Return a vector for each text, as ``SentenceTransformer.encode`` does for a batch."""
        result = self.transformer(**inputs)
        ids = inputs["input_ids"]
        features: dict[str, Any] = {
            **inputs,
            "attention_mask": inputs.get("attention_mask", torch.ones_like(ids)),
            "token_embeddings": result[0],
        }
        for module in self.rest:
            features = module(features)
        return features["sentence_embedding"]


def _sentence(files: _Files, config: Config, dtype: torch.dtype | None) -> Built:
    """Build a model of sentence-transformers from its list of modules."""
    modules = documents.from_python_json(documents.read_text(files.folder / "modules.json"))
    if not isinstance(modules, list) or not all(isinstance(each, dict) for each in modules):
        raise files.repository.damaged("modules.json", "it contains no list of modules")
    library = files.library("sentence_transformers", "sentence-transformers")
    transformer: nn.Module | None = None
    rest = []
    for each in modules:
        name = str(each.get("type", "")).rpartition(".")[2]
        try:
            folder = inside(files.folder, str(each.get("path", "")))
        except UsageError as error:
            raise files.repository.damaged("modules.json", error.message) from error
        if transformer is None:
            transformer = _of_transformers(files, folder, config, dtype, automatic="base")
        else:
            rest.append(_sentence_module(files, library, name, folder))
    if transformer is None:
        raise files.repository.damaged("modules.json", "it names no module")
    number = next(transformer.parameters()).dtype
    model = Embedder(transformer, [module.to(number) for module in rest])
    return Built(model, takes_inputs=transformer)


def _sentence_module(files: _Files, library: Any, name: str, folder: Path) -> nn.Module:
    try:
        modules = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    except ImportError:  # before release 6
        modules = importlib.import_module("sentence_transformers.models")
    kind = _class_named(modules, name)
    if kind is None:
        raise files.unknown(library, name)
    path = folder / "config.json"
    settings = documents.from_python_json(documents.read_text(path)) if path.is_file() else {}
    activation = settings.get("activation_function")
    if isinstance(activation, str):
        settings["activation_function"] = getattr(nn, activation.rpartition(".")[2])()
    return kind(**settings)


def _adapter(files: _Files, config: Config, dtype: torch.dtype | None) -> Built:
    """Build the base model of an adapter of peft, and the adapter's layers in it."""
    library = files.library("peft")
    base = files.repository.base
    assert base is not None  # repository.fetch reads it
    built = build(base, config, dtype)
    settings = library.PeftConfig.from_pretrained(files.folder)
    settings.inference_mode = True
    # peft warns where the two differ; ours is a folder that is gone by then.
    settings.base_model_name_or_path = getattr(built.model, "name_or_path", base.name)
    return built._replace(
        model=library.get_peft_model(built.model, settings), takes_inputs=built.takes_inputs or built.model
    )


_BUILDERS: dict[str, Callable[[_Files, Config, torch.dtype | None], Built]] = {
    "model_index.json": _pipeline,
    "modules.json": _sentence,
    "adapter_config.json": _adapter,
    "config.json": _single,
}
