"""Answers what a file, a folder, a repository of a hub or a workflow becomes on a Mac."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from msgspec.structs import replace

from opcheck.capture import repository
from opcheck.common import documents
from opcheck.common.errors import ModelLoadError, OpcheckError
from opcheck.common.files import describe_missing, is_file
from opcheck.common.names import DTYPES
from opcheck.common.picking import pick
from opcheck.common.versions import Target
from opcheck.data.registrations import OpLists
from opcheck.features.weights import listing as listings
from opcheck.features.weights import part_outcomes
from opcheck.features.weights.part_outcomes import CAST_TO, DtypeJudge
from opcheck.features.weights.weights_records import WORKS, PartOutcome, WeightsAnswer, WeightsPart, outcome_of
from opcheck.render.wording import NOT_CHECKED
from opcheck.weights import reading
from opcheck.weights.stored import StoredFile

_ADAPTER, _PIPELINE, _CONFIG = "adapter_config.json", "model_index.json", "config.json"
_INDEX = ".index.json"
#: Other files of a repository whose headers are read to find a file that works.
_MOST_OTHERS = 8
#: Files of a model whose headers are read.
_MOST_FILES = 256
#: Folders of a pipeline.
_MOST_COMPONENTS = 32
_GGUF_FIRST = ("Q4_K_M", "Q8_0", "Q4_0")
_TRAINING = re.compile(r"optimizer|scheduler|rng_state|training_args|scaler", re.IGNORECASE)
_VARIANT = re.compile(r"\.(fp16|bf16|fp32|non_ema|ema)(?=[.-])")


class _StoredModel(NamedTuple):
    """The files of a model, or of a part of a pipeline, and its configuration."""

    files: Sequence[str]
    format: str = ""
    config: Mapping[str, Any] = {}


class _JudgedModel(NamedTuple):
    """What a model comes to."""

    method: str
    parts: Sequence[PartOutcome]
    stored: Sequence[StoredFile]

    @property
    def worst(self) -> PartOutcome:
        """The part that decides."""
        return max(self.parts, key=lambda part: part.rank, default=outcome_of("no_tensors"))


def answer(spec: str, target: Target, lists: OpLists) -> WeightsAnswer:
    """Return the answer for a path or for a name on a hub.

    Raises:
        OpcheckError: there is no such file or repository, or it cannot be read.
    """
    judge = DtypeJudge(target, lists)
    path = Path(spec).expanduser()
    if is_file(path):
        return _of_path(path, spec, judge)
    if path.is_dir():
        return _of_listing(listings.FolderListing(path, spec), judge)
    is_there = os.path.lexists(path)  # Path.exists raises for names that the system refuses
    if is_there or (spec.lower().endswith((*reading.SUFFIXES, ".json")) and spec.count("/") != 2):
        hint = "write the path of a file or a folder, or a name on the hub: org/name"
        raise ModelLoadError(describe_missing(spec), context=f"working directory {Path.cwd()}", hint=hint)
    listing, file = listings.open_hub(spec)
    return _of_files(listing, [_StoredModel([file])], judge) if file else _of_listing(listing, judge)


def _of_path(path: Path, spec: str, judge: DtypeJudge) -> WeightsAnswer:
    """Answer for a file of this machine."""
    if path.suffix.lower() != ".json":
        listing = _SingleFileListing(path.parent, spec)
        model = _StoredModel([path.name], config=_find_configuration(listing))
        listing.names = [path.name]
        return _of_files(listing, [model], judge)
    try:
        content = documents.from_python_json(documents.read_text(path))
    except documents.DocumentError as error:
        raise reading.make_damaged_error(spec, str(error)) from error
    folder = listings.FolderListing(path.parent, spec)
    if listings.is_workflow(content):
        return _of_workflow(content, folder, judge)
    if isinstance(content, dict) and "weight_map" in content:
        files = _read_index(folder, path.name)
        return _of_files(folder, [_StoredModel(files, "safetensors", _find_configuration(folder))], judge)
    if path.name in {_ADAPTER, _PIPELINE, _CONFIG}:
        return _of_listing(folder, judge)
    raise reading.make_damaged_error(spec, "it is neither an index of weights nor a workflow of ComfyUI")


class _SingleFileListing(listings.FolderListing):
    """The file of a folder that the user named."""

    def open_header(self, name: str) -> AbstractContextManager[tuple[BinaryIO, int]]:
        """Open the file, wherever a link leads."""
        return listings.open_local(self.folder / name)


def _find_configuration(folder: listings.FolderListing) -> Mapping[str, Any]:
    """Return the configuration next to a file; empty where there is none that can be read."""
    try:
        return listings.settings(folder, _CONFIG)
    except OpcheckError:
        return {}


# -- a folder or a repository ----------------------------------------------------------------------------------------


def _of_listing(listing: listings.Listing, judge: DtypeJudge) -> WeightsAnswer:
    """Answer for a model, a pipeline or an adapter."""
    models = [*_models(listing)]
    if not any(model.files for model in models):
        problem = f"{listing.source} has no weights (it has {', '.join(listing.names[:4]) or 'nothing'})"
        hint = "name a folder or a repository with weights, or a file"
        raise ModelLoadError(problem, context=f"looked for {', '.join(reading.SUFFIXES)}", hint=hint)
    return _of_files(listing, models, judge)


def _models(listing: listings.Listing) -> Iterator[_StoredModel]:
    """Yield the model of a listing, or the parts of its pipeline."""
    names = listing.names
    if _PIPELINE in names:
        components = {name.partition("/")[0] for name in names if "/" in name}
        declared = [name for name in listings.settings(listing, _PIPELINE) if name in components]
        for name in declared[:_MOST_COMPONENTS]:
            if files := _choose_files(listing, name):
                config = listings.settings(listing, f"{name}/{_CONFIG}")
                yield _StoredModel(files, "diffusers", config)
        return
    form = "transformers" if _CONFIG in names else ""
    config = listings.settings(listing, _CONFIG)
    if "quantize_config.json" in names and "quantization_config" not in config:
        config = {**config, "quantization_config": {"quant_method": "gptq"}}
    yield _StoredModel(_choose_files(listing, ""), "adapter" if _ADAPTER in names else form, config)


def _choose_files(listing: listings.Listing, folder: str) -> list[str]:
    """Return the files that a library loads from a folder: those of its index, its usual file, or its GGUF file."""
    here = [name for name in listing.names if name.rpartition("/")[0] == folder]
    indexes = [name for name in here if name.endswith(_INDEX) and not _VARIANT.search(name)]
    for index in sorted(indexes, key=lambda name: "safetensors" not in name)[:1]:
        return _read_index(listing, index)
    for suffix in reading.SUFFIXES:
        weights = [n for n in here if n.lower().endswith(suffix) and not _TRAINING.search(n)]
        plain = [name for name in weights if not _VARIANT.search(name)] or weights
        if suffix == ".gguf":
            return sorted(plain, key=_gguf_place)[:1]
        usual = [name for name in plain if PurePosixPath(name).stem in repository.USUAL_STEMS]
        if plain:
            shards = [name for name in plain if repository.SHARD.search(name)]
            return (usual or shards or plain[:1])[:_MOST_FILES]
    return []


def _gguf_place(name: str) -> int:
    """Return the place of a GGUF file among those of a model: the usual types come first."""
    return next((place for place, kind in enumerate(_GGUF_FIRST) if kind in name), len(_GGUF_FIRST))


def _read_index(listing: listings.Listing, index: str) -> list[str]:
    """Return the files of an index.

    Raises:
        ModelLoadError: the index is damaged.
    """
    try:
        named = reading.files_of_index(listing.text(index).encode())
    except documents.DocumentError as error:
        raise reading.make_damaged_error(index, str(error)) from error
    files = listings.files_below(index.rpartition("/")[0], named, listing.names, index)
    if len(files) > _MOST_FILES:
        raise reading.make_damaged_error(index, f"it names {len(files):,} files")
    return files


# -- judging ---------------------------------------------------------------------------------------------------------


def _judge_model(listing: listings.Listing, model: _StoredModel, judge: DtypeJudge) -> _JudgedModel:
    """Judge a model by its configuration and the headers of its files."""
    files = [listings.read_stored(listing, name) for name in model.files]
    quantization = model.config.get("quantization_config")
    stated = quantization if isinstance(quantization, dict) else None
    names = (tensor.name for file in files for tensor in file.tensors)
    method = part_outcomes.method_by_names(names) if stated is None else repository.method_of(stated)
    if files and files[0].format == "gguf":
        method = ""
    if method and (method in part_outcomes.METHODS or stated is not None):
        library = "diffusers" if model.format == "diffusers" else "transformers"
        bits = 8 if stated and stated.get("load_in_8bit") else 4
        dtypes = part_outcomes.total(file.elements() for file in files)
        parts = [part_outcomes.of_method(method, judge, dtypes, library, bits)]
        parts += [part for file in files for part in part_outcomes.of_pickle(file, judge.target)]
    else:
        parts = [part for file in files for part in part_outcomes.of_file(file, judge)]
        parts = [_cast_by_library(part, model, judge) for part in parts]
        parts = [_with_conversion(part, method, model.files, files) for part in parts]
    return _JudgedModel(method, tuple(dict.fromkeys(parts)), files)


def _with_conversion(part: PartOutcome, method: str, names: Sequence[str], files: Sequence[StoredFile]) -> PartOutcome:
    """Return a part whose way out is a line that converts the file; no cast alone converts values with scales."""
    if part.outcome in WORKS or part.part not in DTYPES:
        return part
    if method:
        newer = f"torch {part.since} or newer, or " if part.since else ""
        other = "a file of another dtype: this file has scales, which a cast would leave out"
        return replace(part, instead=f"{newer}{other}")
    if not files or files[0].format != "safetensors" or len(names) != 1:
        return part
    name, dtype = PurePosixPath(names[0]).name, CAST_TO[DTYPES[part.part].kind]
    converted = f"{name.removesuffix('.safetensors')}-{dtype}.safetensors"
    line = (
        f"save_file({{name: tensor.to(torch.{dtype}) if tensor.dtype == torch.{part.part} else tensor for name, "
        f"tensor in load_file({name!r}).items()}}, {converted!r})"
    )
    way = f"{part.instead}; to convert the file, with safetensors.torch: {line}"
    return replace(part, instead=way)


def _cast_by_library(part: PartOutcome, model: _StoredModel, judge: DtypeJudge) -> PartOutcome:
    """Return a part whose dtype ``from_pretrained`` casts on the CPU to that of the configuration."""
    stated = model.config.get("dtype") or model.config.get("torch_dtype")
    is_cast = (
        model.format == "transformers"
        and part.part in DTYPES
        and part.outcome in {"raises_at_load", "raises_at_run"}
        and stated in DTYPES
        and stated != part.part
        and judge.dtype(str(stated)).outcome == "loads"
    )
    if not is_cast:
        return part
    because = f"from_pretrained casts it to {stated}, the dtype of {_CONFIG}, before it reaches mps"
    return replace(part, outcome="casts", because=because, text="", since="transformers")


def _of_files(listing: listings.Listing, models: Sequence[_StoredModel], judge: DtypeJudge) -> WeightsAnswer:
    judged = [_judge_model(listing, model, judge) for model in models]
    files = [file for each in judged for file in each.stored]
    worst = max((each.worst for each in judged), key=lambda part: part.rank)
    raising = next(m for m, each in zip(models, judged, strict=True) if each.worst == worst)
    other = "" if worst.outcome in WORKS else _other_file(listing, raising, judge)
    rows = [
        _row(name, file.format, each.worst, [file], file.elements())
        for model, each in zip(models, judged, strict=True)
        for name, file in zip(model.files, each.stored, strict=True)
    ]
    return _answer(
        *(listing.source, judge, worst, rows, files),
        format=models[0].format or (files[0].format if files else ""),
        method=next((each.method for each in judged if each.method), ""),
        instead="; or ".join(filter(None, (other, worst.instead))),
        parts=tuple(dict.fromkeys(part for each in judged for part in each.parts)),
        evidence=tuple(dict.fromkeys(worst.evidence)),
        not_checked=(NOT_CHECKED, "what a program does with the weights: opcheck audit"),
    )


def _row(
    name: str, form: str, worst: PartOutcome, files: Sequence[StoredFile], dtypes: Mapping[str, int]
) -> WeightsPart:
    outcome, nbytes = worst.outcome, sum(file.nbytes for file in files)
    return WeightsPart(name=name, format=form, outcome=outcome, bytes=nbytes, dtypes={**dtypes}, text=worst.text)


def _answer(
    source: str,
    judge: DtypeJudge,
    worst: PartOutcome,
    rows: Sequence[WeightsPart],
    files: Sequence[StoredFile],
    **others: Any,
) -> WeightsAnswer:
    """Return the answer by the part that decides, the files by their names, and those that were read."""
    stated: dict[str, Any] = {
        "source": source,
        "torch": str(judge.target.torch),
        "macos": str(judge.target.macos),
        "dtypes": part_outcomes.total(row.dtypes for row in rows),
        **pick(worst, "outcome", "since", "because", "instead", "evidence"),
        "text": worst.text or worst.because,
        "bytes": sum(row.bytes for row in rows),
        "memory": part_outcomes.memory(files, judge.target, dense=worst.outcome == "casts"),
        "files": tuple(rows),
    }
    return WeightsAnswer(**stated | others)


def _other_file(listing: listings.Listing, model: _StoredModel, judge: DtypeJudge) -> str:
    """Return another file of the same repository that works; empty: none was found among the first."""
    folders = {name.rpartition("/")[0] for name in model.files}
    near = [name for name in listing.names if name.rpartition("/")[0] in folders and name not in model.files]
    whole = (name for name in near if not _TRAINING.search(name) and not repository.SHARD.search(name))
    others = (name for name in whole if name.lower().endswith(reading.SUFFIXES))
    for name in sorted(others, key=_gguf_place)[:_MOST_OTHERS]:
        try:
            judged = _judge_model(listing, _StoredModel([name]), judge)
        except OpcheckError:
            continue
        if judged.worst.outcome in WORKS:
            return f"{name} of the same {'repository' if not listing.is_whole else 'folder'} ({judged.worst.outcome})"
    return ""


# -- workflows -------------------------------------------------------------------------------------------------------


def _of_workflow(content: Any, folder: listings.FolderListing, judge: DtypeJudge) -> WeightsAnswer:
    """Answer for the files that a workflow names: by their headers, or by their names where they are not here."""
    here = {PurePosixPath(name).name: name for name in folder.names}
    rows: list[WeightsPart] = []
    parts: list[PartOutcome] = []
    files: list[StoredFile] = []
    for named in listings.named_files(content):
        found = here.get(PurePosixPath(named.name).name)
        judged = _judge_model(folder, _StoredModel([found]), judge) if found else None
        stored = [*judged.stored] if judged else []
        own = judged.worst if judged else _by_name(named, judge)
        casts = [judge.dtype(named.dtype)] if named.dtype else []
        worst = max((own, *casts), key=lambda part: part.rank)
        files += stored
        parts.append(replace(worst, part=f"{named.name} ({named.node})"))
        form = stored[0].format if stored else listings.format_of(named.name)
        dtypes = part_outcomes.total(file.elements() for file in stored)
        rows.append(_row(named.name, form, worst, stored, dtypes))
    if not rows:
        raise reading.make_damaged_error(folder.source, "its nodes name no file of weights")
    worst = max(parts, key=lambda part: part.rank)
    guessed = [row.name for row in rows if not row.bytes]
    is_guess = rows[parts.index(worst)].name in guessed
    by_name = ", by its name, for the file is not here" if is_guess else ""
    missing = (f"not here, judged by name: {', '.join(guessed[:4])}",) if guessed else ()
    return _answer(
        *(folder.source, judge, worst, rows, files),
        format="comfyui",
        because=f"{worst.part}{by_name}: {worst.because}",
        memory=part_outcomes.memory(files, judge.target, dense=False),
        parts=tuple(parts),
        not_checked=(NOT_CHECKED, *missing),
    )


def _by_name(named: listings.NamedFile, judge: DtypeJudge) -> PartOutcome:
    """Return what the name of a file that is not here states of its dtype."""
    method, dtype = listings.stated_by(named.name)
    if method:
        return part_outcomes.of_method(method, judge)
    if dtype in DTYPES:
        return judge.dtype(dtype)
    if dtype:
        return judge.block(dtype, "ComfyUI-GGUF")
    return outcome_of("no_dtype_in_name")
