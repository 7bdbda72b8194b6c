"""What a file of a model is, by its first bytes and its members; none of it is run.  Imports no torch."""

from __future__ import annotations

import zipfile
from pathlib import Path

from opcheck.common import documents


def is_inner(members: list[zipfile.ZipInfo]) -> bool:
    """Return whether it is the directory of an archive inside of the file, as it is found at the end of half a file."""
    return bool(members) and min(info.header_offset for info in members) > 0


def kind_of(path: Path) -> str:
    """Return what a file is by its content, as a noun; empty: nothing that is known here."""
    with documents.open_file(path) as file:
        start = file.read(16)
        infos: list[zipfile.ZipInfo] = []
        try:
            if start.startswith(b"PK"):
                infos = zipfile.ZipFile(file).infolist()
        except (OSError, ValueError, zipfile.BadZipFile):
            return ""
    if start.startswith(b"PK"):
        if is_inner(infos):
            return ""
        names = {info.filename for info in infos}
        members = {name.partition("/")[2] for name in names}
        return next((kind for member, kind in _ZIPPED.items() if member in members | names), "")
    if start[8:10] == b'{"':
        return "a safetensors file"
    kind = next((kind for sign, kind in _STARTS.items() if start.startswith(sign)), "")
    return kind or _SUFFIXES.get(path.suffix.lower(), "")


#: A member that only files of this kind have; the first that fits.
_ZIPPED = {
    ".data/extern_modules": "an archive of torch.package",
    "constants.pkl": "a TorchScript archive",
    "archive_format": "a program of torch.export",
    "serialized_exported_program.json": "a program of torch.export",
    "data.pkl": "a checkpoint of torch.save",
    "META-INF/MANIFEST.MF": "a Java archive",
}

#: The first bytes of a file.
_STARTS = {
    b"GGUF": "a GGUF file",
    b"\x89HDF": "an HDF5 file",
    b"\x80\x02": "a pickle, as torch.save wrote it before 1.6",
    b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle",
    b"\x80\x05": "a pickle",
}

#: Files that are known by their name alone.
_SUFFIXES = {
    ".mlmodel": "a Core ML model",
    ".onnx": "an ONNX model",
    ".tflite": "a TensorFlow Lite model",
}
