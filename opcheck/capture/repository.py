"""Reads what a hub or a folder states of a model: configuration files and the headers of its weights, never weights.

It imports no torch.  The process that requests a capture calls ``fetch``; the child that builds the model gets the
contents with its request, and needs neither the network nor the folder.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import json
import math
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from opcheck.capture.word_lists import read_words
from opcheck.common import caches, documents, sanitize
from opcheck.common.documents import DocumentError
from opcheck.common.errors import ModelLoadError, OpcheckError, explain_errors
from opcheck.common.files import is_file
from opcheck.common.python_source import source_lines
from opcheck.common.text import one_line, plural, type_and_text
from opcheck.common.yaml_text import load_shipped
from opcheck.model.records import Record
from opcheck.weights.reading import read_safetensors
from opcheck.weights.stored import TYPES

#: Names of configuration files; nothing else is downloaded.
_CONFIGURATIONS = read_words("configurations")
#: The file that states what kind of model a repository contains; the first that is there.
MARKERS = ("model_index.json", "modules.json", "adapter_config.json", "config.json")
_ADAPTER = "adapter_config.json"
_CONFIG = "config.json"
#: Folders of the same model in the formats of other runtimes.
_OTHER_RUNTIMES = frozenset({"coreml", "flax", "onnx", "openvino", "original", "metal"})
#: ``unet/diffusion_pytorch_model.fp16.safetensors`` next to the same file without ``.fp16``.
_VARIANT = re.compile(r"\.(fp16|bf16|fp32|non_ema|ema)(?=[.-])")
#: ``model-00002-of-00030.safetensors``
SHARD = re.compile(r"-(\d{5})-of-\d{5}")
#: Bytes of one configuration file.
_MOST_BYTES = 8 << 20
#: Files of weights whose headers are read: a model of 671 billion parameters has 163.
_MOST_HEADERS = 256
#: safetensors' names of torch's dtypes.
_DTYPE_NAMES = {dtype: name for name, (_, dtype) in TYPES["safetensors"].items() if dtype}
#: Axes of a shape that count: a header may claim millions.
_MOST_AXES = 64
#: Elements of one file: more than any disk can have.
_MOST_ELEMENTS = 1 << 53
_AT_ONCE = 8
#: Seconds until a hub must answer.
PATIENCE = 10.0
#: Seconds for its first answer, which lists the files.
FIRST_ANSWER = 30.0
#: Seconds for all that is read of one repository.
WHOLE = 120.0
#: Bytes of one answer: the list of 100,000 files has a fifth.
_MOST_ANSWER = 64 << 20
#: The name of the threads that wait for a hub.
_ASKING = "opcheck asks a hub"

#: The revision where none is named.
_MAIN = "main"

_ORG_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[^@\s]+)?")
_ONE_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?(@[^@\s]+)?")
#: Files that are a model or weights by themselves: a slash before them is that of a path.
_FILES = (".bin", ".ckpt", ".gguf", ".ipynb", ".onnx", ".pt", ".pt2", ".pth", ".py", ".safetensors")
#: Models whose configurations ship with opcheck (capture/yaml).
RECIPE = "recipe:"
HUB = "hf:"
#: ``transformers:pipeline/text-generation``
_TASK = "pipeline/"


class FolderWeights(Record, frozen=True, kw_only=True):
    """The dtypes of the tensors in one folder of a repository, by the headers of its safetensors files."""

    #: empty: the repository itself; else a component of a pipeline
    folder: str = ""
    #: dtype as safetensors writes it -> number of elements
    elements: dict[str, int] = {}
    #: files whose headers were read
    headers: int = 0
    #: files in all
    files: int = 0


class DamagedError(ModelLoadError):
    """A file of a repository cannot be used."""


class Repository(Record, frozen=True, kw_only=True):
    """What is known of a model before it is built."""

    #: ``openai/whisper-small``, or the folder as the user wrote it
    name: str
    #: of the hub; empty: a folder
    commit: str = ""
    #: path in the repository -> the text of a configuration file
    files: dict[str, str] = {}
    weights: tuple[FolderWeights, ...] = ()
    #: other files; only the first few, for a message
    others: tuple[str, ...] = ()
    #: the model that an adapter changes
    base: Repository | None = None
    #: whether Python code of the repository may run
    trusted: bool = False

    def settings(self, path: str) -> dict[str, Any]:
        """Return the content of a JSON file; {}: there is none.

        Raises:
            ModelLoadError: it is no JSON object.
        """
        if path not in self.files:
            return {}
        try:
            content = documents.from_python_json(self.files[path])
        except DocumentError as error:
            raise self.damaged(path, str(error)) from error
        if not isinstance(content, dict):
            raise self.damaged(path, "it contains no settings")
        return content

    def quantized_by(self) -> tuple[str, ...]:
        """Return the quantization methods of the weights of the model or of its parts."""
        return self.in_parts(_quantizations)

    def hub_kernels(self) -> tuple[str, ...]:
        """Return the kernels of the hub that configurations of the model or of its parts name."""
        return self.in_parts(lambda settings: (name for name in hub_kernels_in(settings) if name != USE_KERNELS))

    def in_parts(self, find: Callable[[dict[str, Any]], Iterable[str]]) -> tuple[str, ...]:
        """Return what is found in the configurations of the model, of its parts and of its base, each once."""
        configurations = [path for path in self.files if PurePosixPath(path).name == _CONFIG]
        names = [name for path in configurations for name in find(self.settings(path))]
        return tuple(dict.fromkeys((*names, *(self.base.in_parts(find) if self.base else ()))))

    def text(self, path: str) -> str:
        """Return the text of a file for the library that reads it: without kernels of the hub."""
        if PurePosixPath(path).name != _CONFIG or not self.hub_kernels():
            return self.files[path]
        return json.dumps(remove_kernels(self.settings(path)))

    def damaged(self, path: str, why: str) -> DamagedError:
        """Return the error for a file that cannot be used."""
        return DamagedError(
            f"{path} of {self.name} cannot be read: {why}",
            context=f"model {self.name}",
            hint="audit another revision, hf:org/name@revision, or a folder with the file corrected"
            if self.commit
            else "correct the file",
        )

    @property
    def kind(self) -> str:
        """The file that states what kind of model it is."""
        return next(name for name in MARKERS if name in self.files)

    def source(self) -> str:
        """Say what was read, for the report."""
        if self.name.startswith("recipe "):
            return f"{self.name}: its public configuration, shipped with opcheck; nothing was downloaded"
        size = sum(len(text.encode()) for text in self.files.values())
        headers = sum(weights.headers for weights in self.weights)
        of_files = sum(weights.files for weights in self.weights)
        parts = [f"{plural(len(self.files), 'configuration file')} ({size / 1024:.1f} KiB)"]
        if headers:
            some = f"{headers} of {of_files}" if headers < of_files else f"{headers}"
            parts.append(f"the headers of {some} safetensors {'file' if headers == 1 else 'files'}")
        at = f" at {self.commit[:12]}" if self.commit else ""
        text = f"{self.name}{at}: {' and '.join(parts)} read, no weights"
        if self.trusted:
            text += ", its Python code run"
        return f"{text}; {self.base.source()}" if self.base else text


def _quantizations(settings: Mapping[str, Any]) -> Iterator[str]:
    stated = settings.get("quantization_config")
    if isinstance(stated, dict):
        yield method_of(stated)


def method_of(quantization: Mapping[str, Any]) -> str:
    """Return the method that a ``quantization_config`` states."""
    stated = quantization.get("quant_method")
    is_old = quantization.get("load_in_4bit") or quantization.get("load_in_8bit")
    return str(stated or ("bitsandbytes" if is_old else "an unnamed method"))


class _Name(NamedTuple):
    """A name on the hub."""

    repository: str
    revision: str | None


def is_repository(spec: str) -> bool:
    """Return whether a model's name means a repository of a hub, a recipe, or a folder."""
    if spec.startswith((HUB, RECIPE, f"transformers:{_TASK}")) or _is_folder(spec):
        return True
    if spec.startswith("diffusers:"):
        return spec.endswith("Pipeline")
    if spec.lower().endswith(_FILES) or is_file(Path(spec)):
        return False
    return bool(_ORG_NAME.fullmatch(spec))


def fetch(spec: str, *, trusted: bool = False) -> Repository:
    """Return what a hub, a folder or the recipes say of a model; what is downloaded goes to the hub's own cache.

    Args:
        spec: ``org/name``, ``org/name@revision``, ``hf:name``, a folder, ``recipe:org/name``,
            ``diffusers:StableDiffusionPipeline`` or ``transformers:pipeline/TASK``.
        trusted: whether Python code of the repository may run.

    Raises:
        ModelLoadError: there is none, it cannot be reached, or it has no configuration.
    """
    repository = _read(spec, trusted=trusted)
    base = _base(repository, trusted=trusted) if repository.kind == _ADAPTER else None
    return msgspec.structs.replace(repository, base=base, trusted=trusted)


def _read(spec: str, *, trusted: bool) -> Repository:
    if _is_folder(spec):
        repository = _from_folder(Path(spec).expanduser(), spec, trusted=trusted)
    elif ":" in spec and not spec.startswith(HUB):
        repository = _from_recipe(spec)
    else:
        repository = _from_hub(parse_name(spec), trusted=trusted)
    if not any(name in repository.files for name in MARKERS):
        raise no_configuration(repository.name, repository.others)
    return repository


def _base(adapter: Repository, *, trusted: bool) -> Repository:
    """Read the model that an adapter changes.

    Raises:
        ModelLoadError: the adapter names none, or it cannot be read.
    """
    name = adapter.settings(_ADAPTER).get("base_model_name_or_path")
    if not (isinstance(name, str) and name):
        raise adapter.damaged(_ADAPTER, "it names no base model")
    if not (_is_folder(name) or _ONE_NAME.fullmatch(name)):
        raise ModelLoadError(
            f"the base model of {adapter.name} is not here: {name!r} is neither a folder nor a name on the hub",
            context=f"base_model_name_or_path in {_ADAPTER} of {adapter.name}",
            hint="write there the name of its model on the hub, or the folder that has it",
        )
    try:
        base = _read(name if _is_folder(name) else f"{HUB}{name}", trusted=trusted)
    except ModelLoadError as error:
        raise ModelLoadError(
            f"the base model of {adapter.name}: {error.message}", context=error.context, hint=error.hint
        ) from error
    if base.kind == _ADAPTER:
        raise adapter.damaged(_ADAPTER, f"its base model {name} is an adapter, too")
    return base


def _is_folder(spec: str) -> bool:
    try:
        return Path(spec).expanduser().is_dir()
    except (OSError, ValueError, RuntimeError):  # a name that no file can have; "~nobody"
        return False


def parse_name(spec: str) -> _Name:
    """Return the repository and the revision of a name on the hub.

    Raises:
        ModelLoadError: it is no such name.
    """
    text = spec.removeprefix(HUB)
    if not _ONE_NAME.fullmatch(text):
        raise ModelLoadError(
            f"not a name on the hub: {text!r}",
            context=f"model {spec}",
            hint="write hf:org/name or hf:org/name@revision",
        )
    name, _, revision = text.partition("@")
    return _Name(name, revision or None)


def no_configuration(name: str, others: Sequence[str]) -> ModelLoadError:
    """Return the error for a repository or a folder that has only other files than a model's configuration."""
    seen = ", ".join(map(sanitize.one_line, others[:4])) or "nothing"
    gguf = any(each.endswith(".gguf") for each in others)
    return ModelLoadError(
        f"{name} contains no configuration of a model (it has {seen})",
        context=f"it should have {', '.join(reversed(MARKERS))}",
        hint=f"audit the model that the GGUF files were made from; opcheck weights {name} shows what they become"
        if gguf
        else "name the repository or the folder that has its config.json, or write file.py:attribute",
    )


# -- a folder --------------------------------------------------------------------------------------------------------


def _from_folder(folder: Path, spec: str, *, trusted: bool) -> Repository:
    paths = (*folder.glob("*"), *folder.glob("*/*"))
    names = sorted(path.relative_to(folder).as_posix() for path in paths if path.is_file())
    return _read_files(
        spec,
        names,
        lambda name: _text(folder / name, name, spec),
        lambda name: _header(folder / name, name, spec),
        trusted=trusted,
    )


def _read_files(
    repository: str,
    names: Sequence[str],
    text: Callable[[str], str],
    header: Callable[[str], Counter[str]],
    *,
    trusted: bool,
) -> Repository:
    """Return what the files of these names say; ``text`` reads a configuration, ``header`` the dtypes of weights."""
    wanted = [*_configurations(names, code=trusted)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return Repository(
            name=repository,
            files=dict(zip(wanted, pool.map(text, wanted), strict=True)),
            weights=tuple(_weights(names, lambda files: sum(pool.map(header, files), Counter[str]()))),
            others=tuple(name for name in names if PurePosixPath(name).name not in _CONFIGURATIONS)[:8],
        )


def _text(path: Path, name: str, spec: str) -> str:
    about, hint = f"model {spec}", "correct the file"
    with explain_errors(DocumentError, f"{name} cannot be read", context=about, hint=hint, kind=ModelLoadError):
        return documents.read_text(path, _MOST_BYTES)


def _header(path: Path, name: str, spec: str) -> Counter[str]:
    """Return the elements of each dtype in a safetensors file."""
    try:
        with documents.open_file(path) as file:
            stored = read_safetensors(file, os.fstat(file.fileno()).st_size, is_whole=False)
        return _count((_DTYPE_NAMES.get(tensor.dtype, tensor.dtype), tensor.elements) for tensor in stored.tensors)
    except (OSError, DocumentError) as error:
        raise ModelLoadError(
            f"the header of {name} cannot be read: {one_line(error)}",
            context=f"model {spec}",
            hint="download the file again, or leave it out: the configuration alone is enough",
        ) from error


def _count(tensors: Iterable[tuple[str, int]]) -> Counter[str]:
    """Return the elements of each dtype, from the dtype and the elements of each tensor; a header may claim any.

    Raises:
        DocumentError: no file has as many.
    """
    counts: Counter[str] = Counter()
    for dtype, elements in tensors:
        counts[dtype] += elements
    if counts.total() > _MOST_ELEMENTS:
        raise DocumentError("it names more elements than a file can have")
    return counts


# -- which files -----------------------------------------------------------------------------------------------------


def _configurations(names: Iterable[str], *, code: bool) -> Iterator[str]:
    """Yield the configuration files, and the Python code next to them if ``code`` is wanted."""
    for name in names:
        path = PurePosixPath(name)
        if not _is_inside(path) or path.parts[0] in _OTHER_RUNTIMES:
            continue
        if path.name in _CONFIGURATIONS or (code and path.suffix == ".py" and len(path.parts) == 1):
            yield name


def _is_inside(path: PurePosixPath) -> bool:
    """Return whether a file lies in a repository or in a folder of it; its list may name any path."""
    in_place = 0 < len(path.parts) <= 2 and not path.is_absolute() and ".." not in path.parts
    return in_place and not any(letter in str(path) for letter in "\\:\0")


def _weights(names: Iterable[str], count: Callable[[Sequence[str]], Counter[str]]) -> Iterator[FolderWeights]:
    """Yield the dtypes of each folder; ``count`` returns the elements of each dtype in some files."""
    folders: dict[str, list[str]] = {}
    for name in names:
        path = PurePosixPath(name)
        if path.suffix == ".safetensors" and _is_inside(path) and path.parts[0] not in _OTHER_RUNTIMES:
            folders.setdefault(str(path.parent).removeprefix("."), []).append(name)
    for folder, files in sorted(folders.items()):
        plain = [name for name in files if not _VARIANT.search(name)] or files
        sharded = [name for name in plain if SHARD.search(name)]
        whole = [name for name in plain if not SHARD.search(name)]
        # Of several whole files the default of the libraries; else the first.
        usual = [name for name in whole if PurePosixPath(name).stem in USUAL_STEMS] or whole[:1]
        chosen = usual or sharded
        read = chosen[:_MOST_HEADERS]
        yield FolderWeights(folder=folder, elements=dict(count(read)), headers=len(read), files=len(chosen))


USUAL_STEMS = frozenset({"adapter_model", "diffusion_pytorch_model", "model"})


# -- recipes ---------------------------------------------------------------------------------------------------------


def _from_recipe(spec: str) -> Repository:
    """Return what is known of the repository that is named, or that represents a class of diffusers or a task.

    Raises:
        ModelLoadError: there is none.
    """
    every = recipes()
    prefix, _, name = spec.partition(":")
    if prefix == "diffusers":
        fitting = (key for key, each in every.items() if each.index.get("_class_name") == name)
    elif spec.startswith(RECIPE):
        fitting = (key for key in every if key == name)
    else:
        name = name.removeprefix(_TASK)
        fitting = (key for key, each in every.items() if each.task == name and each.config)
    if chosen := next(fitting, ""):
        return Repository(
            name=f"recipe of {chosen}",
            files={path: json.dumps(value) for path, value in every[chosen].contents().items()},
            weights=(FolderWeights(elements={every[chosen].dtype: 1}),),
        )
    if spec.startswith(RECIPE):
        near = difflib.get_close_matches(name, every)
        raise ModelLoadError(
            f"opcheck has no recipe of {name}",
            context=f"model {spec}",
            hint=f"did you mean recipe:{near[0]}" if near else f"audit it from the hub: hf:{name}",
        )
    tasks = sorted({each.task for each in every.values() if each.config})
    raise ModelLoadError(
        f"opcheck has no recipe of a model for {name}",
        context=f"model {spec}",
        hint="name a repository of the hub: org/name" if prefix == "diffusers" else f"it has {', '.join(tasks)}",
    )


# -- the hub ---------------------------------------------------------------------------------------------------------


def import_hub(subject: str) -> Any:
    """Return huggingface_hub, or raise a ModelLoadError where it is not installed."""
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        context, hint = f"{subject} is on a hub", "python -m pip install huggingface_hub"
        raise ModelLoadError("huggingface_hub is not installed", context=context, hint=hint) from error


def ask_hub(work: Callable[[], Any], seconds: float) -> Any:
    """Return the result of requests to the hub, with a limit on their time and on the size of each answer.

    In a thread of its own, which ends with the process: no library stops a transfer that continues.

    Args:
        work: makes the requests with huggingface_hub.
        seconds: what they may take.

    Raises:
        TimeoutError: it takes longer; a server may send a byte now and then.
    """
    outcome: Future[Any] = Future()

    def answer() -> None:
        try:
            session: Any = importlib.import_module("huggingface_hub.utils").get_session()
            # Before huggingface_hub 1.0 it is a session of requests.
            hooks = (session.event_hooks if hasattr(session, "event_hooks") else session.hooks)["response"]
            hooks[:] = dict.fromkeys([*hooks, _limit_size])
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            outcome.set_exception(error)

    threading.Thread(target=answer, name=_ASKING, daemon=True).start()
    if not wait([outcome], seconds).done:
        raise TimeoutError(f"its answer is not complete after {max(seconds, 0):.3g} s")
    return outcome.result()


def _limit_size(response: Any, *_arguments: Any, **_options: Any) -> None:
    """Let the content of a response of httpx or of requests end with an error where it is too long.

    The session is the whole process's: what the program itself loads from a hub has no limit.
    """
    if threading.current_thread().name != _ASKING:
        return
    name = "iter_bytes" if hasattr(response, "iter_bytes") else "iter_content"
    read = getattr(response, name)

    def read_limited(*arguments: Any, **options: Any) -> Iterator[bytes]:
        left = _MOST_ANSWER
        for part in read(*arguments, **options):
            left -= len(part)
            if left < 0:
                raise DocumentError(f"an answer of more than {_MOST_ANSWER >> 20} MiB")
            yield part

    setattr(response, name, read_limited)


def _from_hub(name: _Name, *, trusted: bool) -> Repository:
    hub = import_hub(f"model {name.repository}")
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return _from_cache(name, "HF_HUB_OFFLINE is set", trusted=trusted)
    importlib.import_module("huggingface_hub.utils").disable_progress_bars()
    api = hub.HfApi()
    until = time.monotonic() + WHOLE
    try:
        info = ask_hub(lambda: api.model_info(name.repository, revision=name.revision, timeout=PATIENCE), FIRST_ANSWER)
        commit = str(info.sha)
        kept = _load_kept(name.repository, commit, trusted=trusted)
        if kept is not None:
            _keep(kept, name.revision or _MAIN)
            return kept
        names = sorted(entry.rfilename for entry in info.siblings or ())

        def text(path: str) -> str:
            local = ask_hub(
                lambda: hub.hf_hub_download(name.repository, path, revision=commit), until - time.monotonic()
            )
            return _text(Path(local), path, name.repository)

        def header(path: str) -> Counter[str]:
            parse = functools.partial(api.parse_safetensors_file_metadata, name.repository, path, revision=commit)
            metadata = ask_hub(lambda: parse(timeout=PATIENCE), until - time.monotonic())
            return _count((tensor.dtype, math.prod(tensor.shape[:_MOST_AXES])) for tensor in metadata.tensors.values())

        repository = _read_files(name.repository, names, text, header, trusted=trusted)
        repository = msgspec.structs.replace(repository, commit=commit, trusted=trusted)
    except OpcheckError:
        raise
    except Exception as error:  # huggingface_hub takes what a server sends as it comes
        if is_unreachable(error):
            return _from_cache(name, f"{constants.ENDPOINT} does not answer ({type_and_text(error)})", trusted=trusted)
        raise refusal(error, name) from error
    _keep(repository, commit)
    _keep(repository, name.revision or _MAIN)
    return repository


def is_unreachable(error: BaseException) -> bool:
    """Return whether the hub gave no answer at all: an error of the system, or of the HTTP library of that release."""
    modules = [sys.modules.get(library) for library in ("httpx2", "httpx", "requests")]
    named = [getattr(each, "HTTPError", None) or getattr(each, "RequestException", None) for each in modules]
    kinds = (OSError, *(kind for kind in named if isinstance(kind, type)))
    without_answer = getattr(error, "response", None) is None and not isinstance(error, ValueError)
    return without_answer and isinstance(error, kinds)


def _without_network(repository: str) -> str:
    """Return what to do where the hub cannot be reached: the recipe of the repository, if one ships."""
    word = repository.rpartition("/")[2].lower()
    known = [name for name in recipes() if name.rpartition("/")[2].lower() == word]
    if known:
        return f"opcheck audit recipe:{known[0]} needs no network: its configuration ships with opcheck"
    return "connect and try again, or audit a folder that has its config.json: opcheck audit ./folder"


def refusal(error: BaseException, name: _Name) -> ModelLoadError:
    """Return the error for the hub's answer."""
    from huggingface_hub import constants

    at = f"{constants.ENDPOINT}/{name.repository}"
    status = getattr(getattr(error, "response", None), "status_code", None)
    kinds = {kind.__name__ for kind in type(error).__mro__}
    rows = load_shipped(Path(__file__).with_name("hub_refusals.yaml"))
    row = next(row for row in rows if (row["status"] == status if "status" in row else row["kind"] in kinds))
    near = difflib.get_close_matches(name.repository, recipes(), 1, 0.8)
    facts = {
        "name": name.repository,
        "at": at,
        "revision": name.revision,
        "near": f"did you mean {near[0]}?" if near else "check the name;",
        "status": status or "with an error",
        "error": one_line(error),
        "type_and_error": type_and_text(error),
    }
    return ModelLoadError(row["what"].format(**facts), context=at, hint=row["hint"].format(**facts))


# -- what earlier runs read ------------------------------------------------------------------------------------------


def _entry(repository: str, revision: str, *, trusted: bool) -> Path:
    owner, revision = repository.replace("/", "--"), revision.replace("/", "--")
    return caches.user_cache() / "hub" / f"{owner}@{revision}{'+code' if trusted else ''}.json"


def _load_kept(repository: str, revision: str, *, trusted: bool) -> Repository | None:
    path = _entry(repository, revision, trusted=trusted)
    try:
        kept = msgspec.json.decode(caches.load(path) or b"", type=Repository)
    except (msgspec.MsgspecError, RecursionError):
        return None
    # Another program, or another repository's name, may have written it: a--b/c and a/b--c have one file.
    is_ours = kept.name == repository and kept.trusted == trusted and kept.base is None
    return kept if is_ours and set(_configurations(kept.files, code=trusted)) == {*kept.files} else None


def _keep(repository: Repository, revision: str) -> None:
    path = _entry(repository.name, revision, trusted=repository.trusted)
    with contextlib.suppress(OSError):  # a cache that cannot be written is empty
        caches.store(path, msgspec.json.encode(repository))


def _from_cache(name: _Name, why: str, *, trusted: bool) -> Repository:
    """Return what an earlier run read of a repository, or what the hub's cache on this machine has of it.

    Raises:
        ModelLoadError: it has nothing of it.
    """
    import huggingface_hub as hub

    earlier = _load_kept(name.repository, name.revision or _MAIN, trusted=trusted)
    if earlier is not None:
        return earlier
    for marker in MARKERS:
        try:
            path = hub.try_to_load_from_cache(name.repository, marker, revision=name.revision)
        except (OSError, ValueError):
            path = None
        if isinstance(path, str):
            folder = Path(path).parent
            repository = _from_folder(folder, name.repository, trusted=trusted)
            return msgspec.structs.replace(repository, commit=folder.name)
    raise ModelLoadError(
        f"{name.repository} cannot be read: {why}, and the hub's cache has nothing of it",
        context=f"model {name.repository}"
        + (f"@{name.revision}" if name.revision else "")
        + f", HF_ENDPOINT={os.environ.get('HF_ENDPOINT', '')}".rstrip("="),
        hint=_without_network(name.repository),
    )


class Recipe(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a public repository states of its model."""

    task: str
    dtype: str = "F32"
    config: dict[str, Any] = {}
    index: dict[str, Any] = {}
    #: path -> content of the configuration of a component
    parts: dict[str, dict[str, Any]] = {}
    #: path -> content of another file
    files: dict[str, Any] = {}

    def contents(self) -> dict[str, Any]:
        """Return the content of each configuration file by its path."""
        named = {"config.json": self.config, "model_index.json": self.index}
        return {**self.files, **{name: content for name, content in named.items() if content}, **self.parts}


@functools.cache
def recipes() -> dict[str, Recipe]:
    """Read all recipes, by the names of their repositories."""
    document = load_shipped(Path(__file__).with_name("hub_recipes.yaml"))
    return msgspec.convert(document["models"], dict[str, Recipe])


# -- kernels of the hub that settings of transformers name: the package kernels downloads them, opcheck does not -----


#: The argument that lets transformers replace layers by its own choice of kernels (modeling_utils.py, set_use_kernels);
#: in a configuration file it has no effect.
USE_KERNELS = "use_kernels"
#: Settings that name the function of attention; configurations of earlier releases have the second.
_ATTENTION = frozenset({"attn_implementation", "_attn_implementation"})
#: ``org/name@revision:function``, and ``paged|org/name`` (transformers 5.23.0, integrations/hub_kernels.py, is_kernel).
_KERNEL = re.compile(r"(?:[^|]*\|)?\s*(?P<name>[^\s/:@|][^/:@|]*/[^/:@|]+)(?:@[^/:]+)?(?::[^/:]+)?")
#: The decorator of a layer that ``use_kernels`` may replace, with the name of its kernel, and the layer's class.
_DECORATED = re.compile(r"""^@use_kernel_forward_from_hub\(["'](\w+)["']\)\n(?:@.*\n)*class (\w+)""", re.MULTILINE)


def hub_kernels_in(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the repositories of the kernels that settings and their parts name, and ``use_kernels`` if it is set."""
    if settings.get(USE_KERNELS) is True:
        yield USE_KERNELS
    for key, value in settings.items():
        if key in _ATTENTION:
            # A mapping names a kernel for each part of the model.
            for each in value.values() if isinstance(value, dict) else [value]:
                kernel = _KERNEL.fullmatch(each) if isinstance(each, str) else None
                if kernel:
                    yield kernel["name"].strip()
        elif isinstance(value, dict):
            yield from hub_kernels_in(value)


def remove_kernels(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those that name kernels: the model is built with its usual functions."""
    kept: dict[str, Any] = {}
    for key, value in settings.items():
        if key in _ATTENTION | {USE_KERNELS} and [*hub_kernels_in({key: value})]:
            continue
        kept[key] = remove_kernels(value) if isinstance(value, dict) else value
    return kept


def has_replaced_layers(layers: Collection[str], modules: Iterable[object]) -> bool:
    """Return whether ``use_kernels`` replaces one of the modules.

    The package kernels replaces a module whose class, or a base of it, was decorated with the name of a layer that it
    has a kernel for (kernels 0.17.2, layer/kernelize.py, kernelize).  The decorator does nothing where the package is
    not installed, so that the name is read from the source.

    Args:
        layers: names of the layers that have a kernel for the device.
        modules: those of a model.
    """
    classes = {base for kind in {type(module) for module in modules} for base in kind.__mro__}
    return any(_layer_names(kind.__module__).get(kind.__name__) in layers for kind in classes)


@functools.cache
def _layer_names(module: str) -> dict[str, str]:
    """Return the layer's name that each decorated class of a module has; none where its source is not there."""
    try:
        source = "".join(source_lines(sys.modules[module].__file__ or ""))
    except (KeyError, AttributeError):
        return {}
    return {kind: layer for layer, kind in _DECORATED.findall(source)}
