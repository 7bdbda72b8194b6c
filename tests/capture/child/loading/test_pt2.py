"""Archives of torch.export.save: read as they are, and hostile ones, of which nothing may run."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import opcheck
from opcheck.capture.child.loading import model_archive
from opcheck.capture.child.loading.load import load
from opcheck.cli import invoke
from opcheck.common.errors import ModelLoadError

pytestmark = pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")


class Net(nn.Module):
    """Convolution, batch norm, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> Any:
        """Classify."""
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


class Containers(nn.Module):
    """Takes and returns nested containers; ``target`` and ``metadata`` are names of the archive's own, too."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.tensor([1.0, 2.0, 3.0])
        self.register_buffer("seen", torch.zeros(3))
        self.seen: torch.Tensor

    def forward(self, target: Any, metadata: torch.Tensor, *, name: torch.Tensor) -> Any:
        """Sum up."""
        self.seen.add_(1)
        first = target["a-b"][0] + metadata * name + self.table + torch.tensor([1.0, 0.0, 1.0])
        return {"x": first, "more": [first, (self.seen, first.to(torch.float16))]}


class Sizes(nn.Module):
    """Computes with sizes that are not known."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Fold."""
        rows = x.shape[0] // 2
        return x[: rows * 2].reshape(rows, -1) + torch.full((rows, 1), x.shape[0] / 2)


class Looks(nn.Module):
    """A branch in the graph, and a function that torch.vmap leaves in it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Choose."""
        y = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
        return torch.vmap(lambda row: row * row.sum())(y)


class Large(nn.Module):
    """Two views of one storage, whose values need not be read."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1000, 100))
        self.register_buffer("view", self.weight.detach()[10:20].t())
        self.view: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return x @ self.weight + (x[:, :100] @ self.view).sum()


def _image(batch: int = 2) -> torch.Tensor:
    return torch.ones(batch, 3, 16, 16)


def _transformer() -> torch.export.ExportedProgram:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return torch.export.export(nn.TransformerEncoder(layer, 1).eval(), (torch.ones(2, 5, 16),))


def _containers() -> torch.export.ExportedProgram:
    args = ({"a-b": [torch.ones(3)]}, torch.ones(3))
    return torch.export.export(Containers(), args, {"name": torch.ones(3)})


def _dynamic(model: nn.Module, x: torch.Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},))


def _bert() -> torch.export.ExportedProgram:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=50
    )
    ids = torch.ones(1, 8, dtype=torch.long)
    return torch.export.export(transformers.BertModel(config).eval(), (), {"input_ids": ids})


PROGRAMS: dict[str, Callable[[], torch.export.ExportedProgram]] = {
    "linear": lambda: torch.export.export(nn.Linear(4, 2), (torch.ones(3, 4),)),
    "convolutional": lambda: torch.export.export(Net().eval(), (_image(),)),
    "in training mode": lambda: torch.export.export(Net().train(), (_image(),)),
    "transformer": _transformer,
    "lstm": lambda: torch.export.export(nn.LSTM(4, 8).eval(), (torch.ones(2, 5, 4),)),
    "containers": _containers,
    "dynamic": lambda: _dynamic(Net().eval(), _image(4)),
    "sizes": lambda: _dynamic(Sizes(), torch.ones(6, 2)),
    "higher-order": lambda: torch.export.export(Looks(), (torch.ones(3, 2),)),
    "large": lambda: torch.export.export(Large(), (torch.ones(2, 1000),)),
    "bert": _bert,
}


AUDITED = ["linear", "convolutional", "transformer", "containers"]


@pytest.mark.parametrize("name", [*AUDITED, pytest.param("bert", marks=pytest.mark.slow)])
def test_a_saved_program_is_audited(tmp_path: Path, name: str) -> None:
    torch.export.save(PROGRAMS[name](), tmp_path / "net.pt2")
    report = opcheck.audit(str(tmp_path / "net.pt2"), torch="2.13", macos="15")
    assert report.headline == "runs natively"
    assert report.capture.inputs_note == "the inputs that came with the model"
    assert any(place.location for group in report.groups for place in group.locations) is (
        name not in ("linear", "transformer")
    ), "the others are modules of torch alone"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_saved_program_computes_what_it_did(tmp_path: Path, name: str) -> None:
    program = PROGRAMS[name]()
    torch.export.save(program, tmp_path / "net.pt2")
    loaded = load(str(tmp_path / "net.pt2"), real=True)
    args, kwargs = loaded.inputs or ((), {})
    mine, theirs = loaded.model(*args, **kwargs), program.module()(*args, **kwargs)
    torch.testing.assert_close(tree_leaves(mine), tree_leaves(dict_of(theirs)), rtol=0, atol=0)


def dict_of(result: Any) -> Any:
    """The output of a library's own class as a container."""
    return dict(result) if hasattr(result, "keys") else result


def test_large_weights_take_no_memory_and_stay_shared(tmp_path: Path) -> None:
    torch.export.save(PROGRAMS["large"](), tmp_path / "net.pt2")
    model: Any = load(str(tmp_path / "net.pt2")).model
    assert model.weight.is_meta
    assert model.weight.untyped_storage()._cdata == model.view.untyped_storage()._cdata
    assert model.view.stride() == (1, 100)


def test_a_program_of_another_accelerator_is_read(net: Path) -> None:
    def on_cuda(document: Any) -> None:
        for meta in document["graph_module"]["graph"]["tensor_values"].values():
            meta["device"] = {"type": "cuda", "index": 0}

    _edit_graph(net, on_cuda)
    loaded = load(str(net))
    assert loaded.accelerated
    assert {weight.device.type for weight in loaded.model.parameters()} == {"cpu"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("verb", "options"), [("audit", ["--mode", "train"]), ("compile", ["--mode", "train"])])
def test_training_a_file_exits_with_2(
    net: Path, verb: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke([verb, str(net), *options]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-3] == "an exported program is audited for inference only, not for training"
    assert lines[-2] == f"  in: model {net}"


# -- hostile archives --------------------------------------------------------------------------------------------


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """A saved linear module."""
    file = tmp_path / "net.pt2"
    torch.export.save(PROGRAMS["linear"](), file)
    return file


class Runs:
    """Its pickle makes a file wherever it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> tuple[Any, ...]:
        """Call open()."""
        return (open, (self.mark, "w"))


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    """The file that hostile content makes; none may be there at the end."""
    file = tmp_path / "it_ran"
    yield file
    assert not file.exists()


def _members(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as zipped:
        return {name: zipped.read(name) for name in zipped.namelist()}


def _write(file: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(file, "w", compression) as zipped:
        for name, content in members.items():
            zipped.writestr(name, content)


def _edit_graph(file: Path, edit: Callable[[Any], None]) -> None:
    members = _members(file)
    document = json.loads(members["net/models/model.json"])
    edit(document)
    _write(file, {**members, "net/models/model.json": json.dumps(document).encode()})


def _refusal(file: Path) -> str:
    """The first of the three lines that loading the file for both purposes ends with."""
    for real in (False, True):
        with pytest.raises(ModelLoadError) as caught:
            load(str(file), real=real)
        lines = str(caught.value).splitlines()
        assert len(lines) == 3
        assert lines[1].startswith("  in: ")
        assert lines[2].startswith("  help: ")
        assert caught.value.exit_code == 2
    return lines[0]


def _saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("suffix", [b"", b"\n"])
def test_pickled_sample_inputs_run_nothing(net: Path, mark: Path, suffix: bytes) -> None:
    members = _members(net)
    for content in (_saved(((Runs(mark),), {})), pickle.dumps(Runs(mark)) + suffix):
        _write(net, {**members, "net/data/sample_inputs/model.pt": content})
        assert "data/sample_inputs/model.pt" in _refusal(net)


def test_the_pickled_objects_are_named(net: Path, mark: Path) -> None:
    members = _members(net)
    _write(net, {**members, "net/data/sample_inputs/model.pt": _saved(((Runs(mark),), {}))})
    assert _refusal(net).endswith(
        # Python 3.14 names it _io.open.
        f"is not read: data/sample_inputs/model.pt holds {open.__module__}.open"
    )


def test_pickled_weights_run_nothing(net: Path, mark: Path) -> None:
    members = _members(net)
    config = json.loads(members["net/data/weights/model_weights_config.json"])
    for entry in config["config"].values():
        entry["use_pickle"] = True
    members["net/data/weights/model_weights_config.json"] = json.dumps(config).encode()
    for content in (_saved(Runs(mark)), pickle.dumps(Runs(mark))):
        _write(net, {**members, "net/data/weights/weight_0": content})
        assert "data/weights/weight_0" in _refusal(net)


@pytest.mark.parametrize("prefix", ["tensor_", "custom_obj_", "opaque_obj_"])
def test_pickled_constants_run_nothing(net: Path, mark: Path, prefix: str) -> None:
    members = _members(net)
    meta = json.loads(members["net/data/weights/model_weights_config.json"])["config"]["weight"]
    for tensor_meta in (None, meta["tensor_meta"]):
        entry = {"path_name": f"{prefix}0", "is_param": False, "use_pickle": True, "tensor_meta": tensor_meta}
        config = json.dumps({"config": {"c": entry}}).encode()
        for content in (_saved(Runs(mark)), pickle.dumps(Runs(mark))):
            added = {"net/data/constants/model_constants_config.json": config, f"net/data/constants/{prefix}0": content}
            _write(net, {**members, **added})
            assert f"data/constants/{prefix}0" in _refusal(net)


@pytest.mark.parametrize("folder", ["weights", "constants"])
def test_the_pickles_of_torch_2_8_run_nothing(net: Path, mark: Path, folder: str) -> None:
    _write(net, {**_members(net), f"net/data/{folder}/model.pt": _saved({"weight": Runs(mark)})})
    assert f"data/{folder}/model.pt" in _refusal(net)


def test_the_format_of_torch_2_8_is_read(net: Path) -> None:
    program = PROGRAMS["linear"]()
    members = _members(net)
    kept = {name: text for name, text in members.items() if "config.json" not in name}
    state = dict(program.state_dict)
    _write(net, {**kept, "net/data/weights/model.pt": _saved(state), "net/data/constants/model.pt": b""})
    loaded = load(str(net))
    assert torch.equal(loaded.model.weight, state["weight"])  # type: ignore[attr-defined]


OLD: dict[str, Callable[[Path], Any]] = {
    "state_dict": lambda mark: {"weight": Runs(mark)},
    "constants": lambda mark: {"c": Runs(mark)},
    "example_inputs": lambda mark: ((Runs(mark),), {}),
}


def _old_format(file: Path, members: dict[str, bytes], **changed: Any) -> None:
    program = PROGRAMS["linear"]()
    content = {
        "state_dict": dict(program.state_dict),
        "constants": {},
        "example_inputs": ((torch.ones(3, 4),), {}),
        **changed,
    }
    files = {f"serialized_{name}.pt": _saved(value) for name, value in content.items()}
    graph = members["net/models/model.json"]
    _write(file, {"version": b"8.8", "serialized_exported_program.json": graph, **files})


def test_the_format_up_to_torch_2_7_is_read(net: Path) -> None:
    _old_format(net, _members(net))
    loaded = load(str(net))
    args, _ = loaded.inputs or ((), {})
    assert loaded.model(*args).shape == (3, 2)


@pytest.mark.parametrize("member", OLD)
def test_the_pickles_up_to_torch_2_7_run_nothing(net: Path, mark: Path, member: str) -> None:
    _old_format(net, _members(net), **{member: OLD[member](mark)})
    assert f"serialized_{member}.pt" in _refusal(net)


def _first_node(document: Any) -> Any:
    return document["graph_module"]["graph"]["nodes"][0]


def _call(document: Any, target: str, text: str) -> None:
    node = _first_node(document)
    node["target"] = target
    node["inputs"] = [{"name": "", "arg": {"as_string": text}, "kind": 1}]


def _set_signature(document: Any, **values: Any) -> None:
    document["graph_module"]["module_call_graph"][0]["signature"].update(values)


def _tree(kind: str, context: Any) -> str:
    """The tree of a call with one argument, below a node of this kind."""
    leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
    node = {"type": kind, "context": context, "children_spec": [leaf]}
    args = {"type": "builtins.tuple", "context": "null", "children_spec": [node]}
    kwargs = {"type": "builtins.dict", "context": "[]", "children_spec": []}
    both = {"type": "builtins.tuple", "context": "null", "children_spec": [args, kwargs]}
    return json.dumps([1, both])


def _rename(document: Any, name: str) -> None:
    text = json.dumps(document).replace('"name": "input"', f'"name": {json.dumps(name)}')
    document.clear()
    document.update(json.loads(text.replace('"input": {"dtype"', f'{json.dumps(name)}: {{"dtype"')))


def _size(document: Any, text: Any) -> None:
    values = document["graph_module"]["graph"]["tensor_values"]
    values["input"]["sizes"][0] = {"as_expr": {"expr_str": text, "hint": {"as_int": 3}}}


#: What torch makes of a graph's texts: functions that are called, code that is compiled, modules that are imported.
GRAPHS: dict[str, Callable[[Any, str], None]] = {
    "a function of os": lambda document, mark: _call(document, "torch.os.mkdir", mark),
    "builtins": lambda document, mark: _call(document, "torch.serialization.os.sys.modules.__class__", mark),
    "operator.call": lambda document, mark: _call(document, "_operator.call", mark),
    "methodcaller": lambda document, mark: _call(document, "_operator.methodcaller", mark),
    "loading a library": lambda document, mark: _call(document, "torch.ops.load_library", mark),
    "a method": lambda document, mark: _call(document, "torch.ops.load_library.__call__", mark),
    "a file": lambda document, mark: _call(document, "torch.ops.aten.from_file.default", mark),
    "an operator as an argument": lambda document, _: _first_node(document)["inputs"].append(
        {"name": "x", "arg": {"as_operator": "torch.os.mkdir"}, "kind": 1}
    ),
    "the name of an input": lambda document, mark: _rename(document, f"x=__import__('os').mkdir('{mark}')"),
    "the name of a result": lambda document, mark: _first_node(document).update(name=f"y = open('{mark}', 'w') #"),
    "the name of a parameter": lambda document, mark: document["graph_module"]["signature"]["input_specs"][0][
        "parameter"
    ].update(parameter_name=f'x"), open("{mark}", "w"), ("'),
    "the names of arguments": lambda document, mark: _set_signature(
        document, forward_arg_names=[f"x=open('{mark}', 'w')"]
    ),
    "keywords": lambda document, mark: _set_signature(
        document,
        in_spec=_tree("builtins.list", "null").replace('"[]"', json.dumps(f'["x=open({mark!r})"]')),
        forward_arg_names=None,
    ),
    "an expression": lambda document, mark: _size(document, f"open('{mark}', 'w')"),
    "an expression of a class": lambda document, mark: _size(
        document, f"().__class__.__base__.__subclasses__() or open('{mark}', 'w')"
    ),
    "expressions in a list": lambda document, mark: _size(document, [f"open('{mark}', 'w')"]),
    "expressions in a dict": lambda document, mark: _size(document, {"a": f"open('{mark}', 'w')"}),
    "a symbol": lambda document, mark: _size(document, f"Symbol(\"x'), open('{mark}')\")"),
    "a large power": lambda document, _: _size(document, "Pow(Integer(9), Integer(99999999))"),
    "a large symbol": lambda document, _: document["range_constraints"].update(
        u99999999999={"min_val": 0, "max_val": 1}
    ),
    "an enumeration": lambda document, _: _set_signature(
        document, in_spec=_tree("builtins.dict", json.dumps([{"__enum__": True, "fqn": "this:X", "name": "x"}]))
    ),
    "a factory": lambda document, _: _set_signature(
        document,
        in_spec=_tree(
            "collections.defaultdict",
            {"default_factory_module": "this", "default_factory_name": "s", "dict_context": ["a"]},
        ),
    ),
    "a class": lambda document, _: _set_signature(document, in_spec=_tree("some.Class", "null")),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_texts_of_a_graph_run_nothing(net: Path, mark: Path, name: str) -> None:
    _edit_graph(net, lambda document: GRAPHS[name](document, str(mark)))
    assert " is not read: its graph contains " in _refusal(net)


def test_the_text_of_guards_is_not_compiled(net: Path, mark: Path) -> None:
    _edit_graph(net, lambda document: document.update(guards_code=[f"open('{mark}', 'w') is not None"]))
    loaded = load(str(net))
    args, kwargs = loaded.inputs or ((), {})
    assert loaded.model(*args, **kwargs).shape == (3, 2)


def test_an_operator_that_is_not_there_is_named(net: Path) -> None:
    _edit_graph(net, lambda document: _call(document, "torch.ops.mylib.foo.default", ""))
    assert _refusal(net) == "the operator mylib::foo is not registered here"


def test_compiled_code_is_never_loaded(net: Path, mark: Path) -> None:
    library = b"\x7fELF" + str(mark).encode()
    for kept in (_members(net), {"net/archive_format": b"pt2", "net/archive_version": b"0"}):
        _write(net, {**kept, "net/data/aotinductor/model/model.so": library})
        assert "compiled code of AOTInductor" in _refusal(net)


def _truncated(net: Path) -> None:
    net.write_bytes(net.read_bytes()[:-200])


def _cut(net: Path) -> None:
    content = net.read_bytes()
    net.write_bytes(content[: len(content) // 2])


def _flipped(net: Path) -> None:
    content = bytearray(net.read_bytes())
    place = content.index(b'"graph_module"')
    content[place + 2] ^= 255
    net.write_bytes(content)


def _changed(**changes: bytes | None) -> Callable[[Path], None]:
    """Members by the last part of their names: other content, or none."""

    def change(net: Path) -> None:
        members = _members(net)
        for part, content in changes.items():
            name = next(name for name in members if Path(name).name.startswith(part))
            if content is None:
                del members[name]
            else:
                members[name] = content
        _write(net, members)

    return change


def _added(name: str, content: bytes = b"x") -> Callable[[Path], None]:
    return lambda net: _write(net, {**_members(net), name: content})


def _bomb(net: Path) -> None:
    members = {**_members(net), "net/data/weights/weight_0": bytes(1 << 20)}
    _write(net, members, zipfile.ZIP_DEFLATED)


def _overlapping(net: Path) -> None:
    """The directory says of each member that it is as large as the file."""
    content = bytearray(net.read_bytes())
    place = content.index(b"PK\x01\x02")
    while place >= 0:
        struct.pack_into("<II", content, place + 20, len(content) - 64, len(content) - 64)
        place = content.find(b"PK\x01\x02", place + 4)
    net.write_bytes(content)


def _sizes(net: Path) -> None:
    """A weight with more elements than its member has."""
    members = _members(net)
    name = "net/data/weights/model_weights_config.json"
    config = json.loads(members[name])
    config["config"]["weight"]["tensor_meta"]["sizes"][0] = {"as_int": 1 << 40}
    _write(net, {**members, name: json.dumps(config).encode()})


DAMAGED: dict[str, Callable[[Path], object]] = {
    "no zip": lambda net: net.write_text("not a zip file"),
    "empty": lambda net: net.write_bytes(b""),
    "an empty zip": lambda net: _write(net, {}),
    "truncated": _truncated,
    "cut": _cut,
    "a flipped bit": _flipped,
    "no format": _changed(archive_format=None),
    "another format": _changed(archive_format=b"pt3"),
    "no version": _changed(archive_version=None),
    "another version": _changed(archive_version=b"7"),
    "no graph": _changed(**{"model.json": None}),
    "no weight": _changed(weight_0=None),
    "a short weight": _changed(weight_0=b"abc"),
    "no configuration": _changed(model_weights_config=None),
    "no JSON": _changed(**{"model.json": b'{"graph_module": '}),
    "another JSON": _changed(**{"model.json": b"[1, 2]"}),
    "no UTF-8": _changed(**{"model.json": b"\xff\xfe\x00"}),
    "nested JSON": _changed(**{"model.json": b"[" * 200_000}),
    "nested objects": _changed(**{"model.json": b'{"a":' * 100_000 + b"1" + b"}" * 100_000}),
    "long numbers": _changed(**{"model.json": b'{"graph_module": ' + b"9" * 5000 + b"}"}),
    "two programs": lambda net: (
        _changed(**{"model.json": None})(net),
        _added("net/models/a.json")(net),
        _added("net/models/b.json")(net),
    )[0],
    "a way out": _added("net/../../evil"),
    "a way out of Windows": _added("net\\..\\..\\evil"),
    "from the root": _added("/etc/evil"),
    "a bomb": _bomb,
    "overlapping": _overlapping,
    "sizes": _sizes,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_archives_are_refused(net: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_archive, "_COMPRESSED_LIMIT", 1 << 19)
    DAMAGED[name](net)
    assert _refusal(net).startswith(f"{net} cannot be read: ")


def test_a_damaged_archive_exits_with_2(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _cut(net)
    assert invoke(["audit", str(net)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def _checkpoint(file: Path, mark: Path) -> None:
    torch.save({"weight": Runs(mark)}, file)


def _old_checkpoint(file: Path, mark: Path) -> None:
    torch.save({"weight": Runs(mark)}, file, _use_new_zipfile_serialization=False)


def _plain_pickle(file: Path, mark: Path) -> None:
    file.write_bytes(pickle.dumps(Runs(mark), protocol=4))


def _torchscript(file: Path, mark: Path) -> None:
    _write(file, {"net/code/__torch__.py": str(mark).encode(), "net/constants.pkl": b"x"})


def _safetensors(file: Path, mark: Path) -> None:
    header = json.dumps({"__metadata__": {"a": str(mark)}}).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header)


OTHERS = {
    "a checkpoint of torch.save": _checkpoint,
    "a pickle, as torch.save wrote it before 1.6": _old_checkpoint,
    "a pickle": _plain_pickle,
    "a TorchScript archive": _torchscript,
    "a safetensors file": _safetensors,
}


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt", ".pt2", ""])
@pytest.mark.parametrize("kind", OTHERS)
def test_other_files_are_named_and_not_read(tmp_path: Path, mark: Path, kind: str, suffix: str) -> None:
    file = tmp_path / f"model{suffix}"
    OTHERS[kind](file, mark)
    message = _refusal(file)
    assert f" is {kind}, not a" in message or suffix == ".pt2"
    with pytest.raises(ModelLoadError, match=r"file\.py:attribute"):
        load(str(file))
