"""One program that each rule names, and one that it keeps silent about."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import opcheck.source.rules
from opcheck.common import documents
from opcheck.common.versions import Target, Version
from opcheck.common.vocabulary import SEVERITIES
from opcheck.source import signs
from opcheck.source.rule import Hit, Scanned, ScanRule
from opcheck.source.rule import rule as declare
from opcheck.source.rules import BY_ID, RULES
from tests.source.reading import TARGET, report, scan_text

OLD = Target(torch=Version(2, 2), macos=Version(14))

CHOICE = '"cuda" if torch.cuda.is_available() else "cpu"'

REFUSED = 'try:\n    if d.type != "cuda":\n        raise ValueError\nexcept {}:\n    {}'

#: (rule, a line that it names, a line that it does not)
LINES = [
    ("OC201", "x.cuda()", "x.cpu()"),
    ("OC201", "model.half().cuda(0)", "cuda(x)"),
    ("OC202", 'torch.device("cuda")', 'torch.device("cpu")'),
    ("OC202", 'x.to("cuda:1")', 'x.to("mps")'),
    ("OC202", 'torch.zeros(2, device="cuda")', "torch.zeros(2, device=device)"),
    ("OC202", 'torch.load("f", map_location="cuda")', 'torch.load("f", map_location="cpu")'),
    ("OC202", 'torch.load("f", f"cuda:{rank}")', 'torch.load("f", f"{kind}:{rank}")'),
    ("OC202", 'x.to("cuda:%d" % rank)', 'x.to("cpu:%d" % rank)'),
    ("OC202", "torch.cuda.FloatTensor(2)", "isinstance(x, torch.cuda.FloatTensor)"),
    ("OC202", 'x.type("torch.cuda.LongTensor")', 'x.type("torch.LongTensor")'),
    ("OC202", 'f(options={"device": "cuda"})', 'f(options={"name": "cuda"})'),
    ("OC202", 'd = "cuda"\nf(options={"device": d})', 'd = "cuda"\nf(options={"name": d})'),
    ("OC202", 'Model("base", "cuda")', 'print("base", "cuda")'),
    ("OC202", 'x.to(torch.device("cuda"))', 'x.device == torch.device("cuda")'),
    ("OC202", 'x.to(device="cuda:0")', 'torch.cuda.memory_allocated(device="cuda:0")'),
    ("OC203", 'parser.add_argument("--d", default="cuda")', 'parser.add_argument("--d", default="x")'),
    ("OC203", 'def f(device="cuda"): pass', "def f(device=None): pass"),
    ("OC203", 'def f(d=torch.device("cuda")): pass', 'def f(d=torch.device("cpu")): pass'),
    ("OC203", 'class C:\n    device: str = "cuda"', 'class C:\n    name: str = "cuda"'),
    ("OC203", 'd = config.get("device", "cuda")', 'd = config.get("name", "cuda")'),
    ("OC203", 'd = getattr(args, "device", "cuda:0")', 'd = getattr(args, "device", None)'),
    ("OC204", "if big and not torch.cuda.is_bf16_supported():\n    raise ValueError", "if big or not torch.cuda.is_bf16_supported():\n    print()"),
    ("OC204", "assert torch.cuda.is_available()", "assert torch.backends.mps.is_available()"),
    ("OC204", "if not x.is_cuda:\n    raise ValueError", "if not x.is_cuda:\n    pass"),
    ("OC204", "assert config.cuda", "assert config.cuda is True"),
    ("OC204", REFUSED.format("KeyError", "pass"), REFUSED.format("ValueError", "pass")),
    ("OC204", REFUSED.format("ValueError", "raise"), REFUSED.format("Exception", "print(1)")),
    ("OC204", REFUSED.format("ValueError", "exit(1)"), REFUSED.format("(KeyError, ValueError)", "pass")),
    ("OC205", "torch.cuda.synchronize()", "torch.mps.synchronize()"),
    ("OC205", "torch.cuda.Stream()", "torch.cuda.device_count()"),
    ("OC205", "torch.cuda.memory.reset_peak_memory_stats()", "torch.cuda.is_available()"),
    ("OC206", "torch.cuda.empty_cache()", "torch.mps.empty_cache()"),
    ("OC206", "torch.cuda.manual_seed_all(0)", "torch.manual_seed(0)"),
    ("OC207", "from torch.cuda.amp import custom_fwd\n@custom_fwd\ndef f(c): pass", "from a import custom_fwd\n@custom_fwd\ndef f(c): pass"),
    ("OC207", "torch.cuda.amp.autocast()", "torch.cuda.amp.GradScaler(enabled=False)"),
    ("OC207", "torch.cuda.amp.autocast(enabled=False)", 'torch.autocast("mps", enabled=False)'),
    ("OC207", "@torch.cuda.amp.custom_fwd\ndef f(): pass", "@torch.no_grad()\ndef f(): pass"),
    ("OC207", 'torch.autocast("cuda")', 'torch.autocast("mps")'),
    ("OC207", 'from torch import autocast\nscope = autocast if amp else contextlib.nullcontext\nscope("cuda")', 'from torch import autocast\nscope = autocast if amp else other\nother("cuda")'),
    ("OC207", "torch.amp.GradScaler()", 'torch.amp.GradScaler("mps")'),
    ("OC208", 'torch.distributed.init_process_group("nccl")', 'torch.distributed.init_process_group("gloo")'),
    ("OC208", 'parser.add_argument("--b", default="nccl")', 'parser.add_argument("--b", default="gloo")'),
    ("OC209", 'torch.utils.cpp_extension.load("a", ["a.cu"])', 'torch.utils.cpp_extension.load("a", ["a.cpp"])'),
    ("OC209", 'torch.utils.cpp_extension.CUDAExtension("a", [])', 'torch.utils.cpp_extension.CppExtension("a", [])'),
    ("OC210", "x.double()", "x.cpu().double()"),
    ("OC210", "x.to(torch.float64)", "x.to(torch.float32)"),
    ("OC210", "torch.zeros(2, dtype=torch.double)", 'torch.zeros(2, dtype=torch.double, device="cpu")'),
    ("OC210", 'x.type("torch.DoubleTensor")', 'x.type("torch.FloatTensor")'),
    ("OC210", "x.to(dtype=torch.complex128)", "x.dtype == torch.complex128"),
    ("OC211", "torch.set_default_dtype(torch.float64)", "torch.set_default_dtype(torch.float32)"),
    ("OC213", "DataLoader(data, pin_memory=True)", "DataLoader(data, pin_memory=torch.cuda.is_available())"),
    ("OC213", "x.pin_memory()", "x.memory()"),
    ("OC214", "from flash_attn import flash_attn_func", "from flash import attn"),
    ("OC214", "import nvidia.dali.fn", "import nvidia"),
    ("OC214", 'M.from_pretrained("m", attn_implementation="flash_attention_2")', 'M.from_pretrained("m", attn_implementation="sdpa")'),
    ("OC214", 'M.from_pretrained("m", attn_implementation="flash_attention_2")', 'M.from_pretrained("m", attn_implementation="flash_attention_2" if torch.cuda.is_available() else "sdpa")'),
    ("OC214", "import tinycudann as tcnn", "import tinycud as tcnn"),
    ("OC214", "from diff_gaussian_rasterization import GaussianRasterizer", "from gaussian import GaussianRasterizer"),
    ("OC214", 'M.from_pretrained("m", use_flash_attention_2=True)', 'M.from_pretrained("m", use_flash_attention_2=False)'),
    ("OC214", 'TrainingArguments("o", optim="paged_adamw_8bit")', 'TrainingArguments("o", optim="adamw_torch")'),
    ("OC214", "pipe.enable_xformers_memory_efficient_attention()", "try:\n    pipe.enable_xformers_memory_efficient_attention()\nexcept Exception:\n    pass"),
    ("OC214", "import subprocess\nsubprocess.check_output(['nvidia-smi', '-q'])", "import subprocess\nsubprocess.check_output(['echo', 'nvidia-smi'])"),
    ("OC214", "c = ['nvidia-smi']\nos.system(c)", "c = ['nvidia-smi']\nc = ['ls']\nos.system(c)"),
    ("OC214", "os.system('nvidia-smi -q')", "if which('nvidia-smi'):\n    os.system('nvidia-smi -q')"),
    ("OC214", "from simple_knn._C import distCUDA2", "from simple_nn._C import distCUDA2"),
    ("OC214", "import gsplat", "import gsplatter"),
    ("OC214", "try:\n    import pynvml\nexcept ImportError:\n    pynvml = None", "try:\n    import pynvml\n    pynvml.nvmlInit()\nexcept Exception:\n    pynvml = None"),
    ("OC214", "import nvdiffrast.torch as dr", "if torch.cuda.is_available():\n    import nvdiffrast.torch as dr"),
    ("OC214", "from numba import cuda", "from numba import cuda\nok = cuda.is_available()"),
    ("OC214", "from awq import AutoAWQForCausalLM", "from awk import AutoAWQForCausalLM"),
    ("OC214", "import flashinfer", "try:\n    import flashinfer\nexcept ImportError:\n    flashinfer = None"),
    ("OC214", 'M.from_pretrained("m", load_in_4bit=True)', 'M.from_pretrained("m", load_in_4bit=False)'),
    ("OC214", "C(load_in_8bit=True)", "C(load_in_8bit=torch.cuda.is_available())"),
    ("OC208", 'from lightning import Trainer; Trainer(devices=2, strategy="ddp")', 'from lightning import Trainer; Trainer(accelerator="gpu", devices=1)'),
    ("OC208", "import pytorch_lightning as pl; pl.Trainer(devices=[0, 1])", "import pytorch_lightning as pl; pl.Trainer(accelerator='cpu', devices=2)"),
    ("OC208", "import lightning as L; L.Fabric(strategy='fsdp')", "from transformers import Trainer; Trainer(devices=2, strategy='ddp')"),
    ("OC214", "import MinkowskiEngine as ME", "try:\n    import MinkowskiEngine as ME\nexcept ImportError:\n    ME = None"),
    ("OC215", "torch.backends.cudnn.benchmark = True", "torch.backends.mps.flag = True"),
    ("OC216", 'os.environ["PYTORCH_MPS_FALLBACK"] = "1"', 'os.environ["MY_MPS_FALLBACK"] = "1"'),
    ("OC216", 'os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"', 'os.environ.get("PYTORCH_MPS_FALLBACK")'),
    ("OC216", 'os.putenv("PYTORCH_MPS_FAST_MATH", "yes")', 'os.putenv("PYTORCH_MPS_FAST_MATH", "1")'),
    ("OC216", 'os.environ.update({"PYTORCH_MPS_FAST_MATH": 1})', 'os.environ.update({"PYTORCH_MPS_FAST_MATH": "1"})'),
    ("OC217", 'torch.compile(f, backend="mps")', 'torch.compile(f, backend="aot_eager")'),
    ("OC218", "torch.has_mps", "torch.backends.mps.is_available()"),
    ("OC218", 'getattr(torch, "has_mps", False)', 'getattr(torch, "has_cuda", False)'),
    ("OC219", 'x.to("mps").numpy()', 'x.to("mps").cpu().numpy()'),
    ("OC219", 'torch.ones(2, device="mps").exp().numpy()', "x.numpy()"),
    ("OC201", "def to_cuda(x):\n    x.cuda()", "def cuda(x):\n    x.cuda()"),
    ("OC208", 'S(process_group_backend="nccl")', 'S(process_group_backend="gloo")'),
    ("OC216", 'os.environ["PYTOCH_ENABLE_MPS_FALLBACK"] = "1"', 'os.environ["MPS_FALLBACK"] = "1"'),
    ("OC222", f"d = {CHOICE}", f"d = {CHOICE.replace('cpu', 'mps')}"),
    ("OC222", f"d = torch.device({CHOICE})", f"d = torch.device({CHOICE}) if x else 'mps'"),
    ("OC222", "if torch.cuda.is_available():\n    d = 'cuda'\nelse:\n    d = 'cpu'", "if x:\n    d = 'cuda'\nelse:\n    d = 'cpu'"),
    ("OC222", "d = 'cpu'\nif x.is_cuda:\n    d = 'cuda'", "d = 'cpu'\nif x.is_mps:\n    d = 'mps'"),
    ("OC222", "use_cuda = not args.no_cuda and torch.cuda.is_available()", "print(torch.cuda.is_available())"),
    ("OC222", "if args.cuda:\n    x = x.cuda()", "if args.fast:\n    x = x.to(d)"),
    ("OC207", '@torch.amp.custom_fwd(device_type="cuda")\ndef f(): pass', '@torch.amp.custom_fwd(device_type="mps")\ndef f(): pass'),
    ("OC222", "half = True if torch.cuda.is_available() else False", "half = True if x else False"),
    ("OC222", "if torch.cuda.is_available():\n    model.to('cuda')", "if torch.cuda.is_available():\n    model.to(d)"),
    ("OC222", "if torch.cuda.is_available():\n    i = 0\n    d = f'cuda:{i}'\nelse:\n    d = 'cpu'", "if x:\n    i = 0\n    d = 'gpu'\nelse:\n    d = 'cpu'"),
    ("OC222", "if not torch.cuda.is_available():\n    args.cpu = True", "if not torch.cuda.is_available():\n    args.slow = True"),
    ("OC222", "if not torch.cuda.is_available():\n    d = 'cpu'", "if not torch.cuda.is_available():\n    d = 'meta'"),
    ("OC222", "build(use_gpu=torch.cuda.is_available())", "build(pinned=torch.cuda.is_available())"),
    ("OC222", "o = {'device': 'cuda' if use_gpu else 'cpu'}", "o = {'device': 'mps' if use_gpu else 'cpu'}"),
    ("OC222", "y = x.cuda() if use_cuda else x", "y = x.half() if fast else x"),
    ("OC222", "if torch.cuda.is_available():\n    torch.cuda.empty_cache()", "if torch.cuda.is_available():\n    torch.cuda.manual_seed(0)"),
    ("OC222", f"def f():\n    return {CHOICE}", f"def f():\n    if torch.backends.mps.is_available():\n        return 'mps'\n    return {CHOICE}"),
    ("OC223", 't = torch.half if device.type == "cuda" else torch.float32', 't = torch.half if device.type != "cpu" else torch.float32'),
    ("OC222", "if torch.cuda.is_available():\n    d = d or 'cuda:0'\nelse:\n    d = d or 'cpu'", "if torch.cuda.is_available():\n    d = e or 'cuda:0'\nelse:\n    f = d or 'cpu'"),
    ("OC222", "if torch.cuda.is_available():\n    d = torch.device('cuda:{}'.format(i))\n    f(d)\nelse:\n    d = torch.device('cpu')", "if x:\n    d = torch.device('cuda:{}'.format(i))\n    f(d)\nelse:\n    d = torch.device('cpu')"),
    ("OC222", "def f():\n    if torch.cuda.is_available():\n        return [torch.device(i) for i in range(torch.cuda.device_count())]\n    return [torch.device('cpu')]", "def f():\n    if torch.cuda.is_available():\n        return [torch.device(i) for i in range(torch.cuda.device_count())]\n    return []"),
    ("OC222", "def f():\n    if torch.cuda.is_available():\n        return 'cuda'\n    elif xla():\n        return 'xla'\n    return 'cpu'", "def f():\n    if torch.cuda.is_available():\n        return 'cuda'\n    elif xla():\n        return 'xla'\n    return 'none'"),
    ("OC222", "def f():\n    if not torch.cuda.is_available():\n        return 'cpu'\n    return 'cuda'", "def f():\n    if not torch.cuda.is_available():\n        return 'none'\n    return 'cuda'"),
    ("OC222", "def f(x):\n    if not torch.cuda.is_available():\n        return x\n    return x.cuda()", "def f(x):\n    if not torch.cuda.is_available():\n        return\n    x.cuda()"),
    ("OC222", "if not torch.cuda.is_available():\n    print('slow')\nelif many:\n    x.cuda()", "if not torch.cuda.is_available():\n    print('slow')\nelif many:\n    x.to(d)"),
    ("OC222", "if torch.cuda.is_available():\n    gc.collect()\n    torch.cuda.empty_cache()", "if torch.cuda.is_available():\n    gc.collect()\n    torch.cuda.ipc_collect()"),
    ("OC222", "if torch.cuda.is_available():\n    torch.cuda.synchronize()", "if torch.cuda.is_available():\n    start.record()\n    torch.cuda.synchronize()"),
    ("OC222", "if torch.cuda.is_available():\n    used = torch.cuda.memory_allocated()", "if torch.cuda.is_available():\n    print(torch.cuda.memory_allocated())"),
    ("OC222", "def f():\n    if not torch.cuda.is_available():\n        return 0\n    free, _ = torch.cuda.mem_get_info()\n    return free", "def f():\n    if not x:\n        return 0\n    free, _ = torch.cuda.mem_get_info()\n    return free"),
    ("OC222", "def has_gpu():\n    return torch.cuda.is_available()", "def has_cuda():\n    return torch.cuda.is_available()"),
    ("OC222", "def has_gpu():\n    if torch.cuda.is_available():\n        return True\n    return False", "def has_cuda():\n    if torch.cuda.is_available():\n        return True\n    return False"),
    ("OC222", f"class C:\n    d: str = None\n    def f(self):\n        if self.d is None:\n            self.d = {CHOICE}", f"class C:\n    def f(self):\n        if self.d:\n            self.d = {CHOICE.replace('cpu', 'mps')}"),
    ("OC223", 'amp = device.type == "cuda"', 'assert device.type == "cuda"'),
    ("OC223", "if x.is_cuda:\n    y = f(x)", "if x.is_cuda:\n    print(x)"),
    ("OC223", 'use = d.startswith("cuda")', 'DataLoader(x, pin_memory=d.startswith("cuda"))'),
    ("OC224", 'parser.add_argument("--d", choices=["cuda", "cpu"])', 'parser.add_argument("--d", choices=["cuda", "mps"])'),
    ("OC224", 'assert d in ("cuda", "cpu")', 'x = d in ("cuda", "cpu")'),
    ("OC224", 'def f(d: Literal["cuda", "cpu"]): pass', 'def f(d: Literal["fast", "slow"]): pass'),
    ("OC224", 'S(providers=["CUDAExecutionProvider"])', 'S(providers=["CUDAExecutionProvider", "CoreMLExecutionProvider"])'),
    ("OC224", 'def f():\n    return {"device": (["auto", "cuda", "cpu"], {})}', 'def f():\n    return {"order": (["auto", "cuda", "cpu"], {})}'),
    ("OC224", 'gradio.Dropdown(["cuda", "cpu"])', 'gradio.Markdown(["cuda", "cpu"])'),
    ("OC224", 'if d == "cuda":\n    f()\nelif d == "cpu":\n    g()\nelse:\n    raise ValueError(d)', 'if d == "cuda":\n    f()\nelif d == "cpu":\n    g()\nelse:\n    h()'),
    ("OC224", 'if x:\n    f()\nelse:\n    g()\n    if d == "cuda":\n        f()\n    elif d == "cpu":\n        g()\n    else:\n        raise ValueError(d)', 'if x:\n    f()\nelif d == "cuda":\n    f()\nelif d == "cpu":\n    g()\nelse:\n    raise ValueError(d)'),
    ("OC224", 'if "cuda" in d:\n    f()\nelif "cpu" in d:\n    g()\nelse:\n    print(d)', 'if "cuda" in d:\n    f()\nelif "cpu" in e:\n    g()\nelse:\n    print(d)'),
    ("OC225", "x.type(y.type())", "x.type(y.dtype)"),
    ("OC225", "kind = y.type()\nx.type(kind)", "kind = torch.half\nx.type(kind)"),
    ("OC226", "range(torch.cuda.device_count())", "max(1, torch.cuda.device_count())"),
    ("OC226", "rank % torch.cuda.device_count()", "torch.cuda.device_count() > 1"),
    ("OC227", 'torch.load("f")', 'torch.load("f", map_location="cpu")'),
    ("OC228", "torch.nn.DataParallel(m)", "if torch.cuda.device_count() > 1:\n    torch.nn.DataParallel(m)"),
    ("OC229", "from torch.utils.data import DataLoader\nfor x in DataLoader(d, num_workers=2):\n    pass", "from torch.utils.data import DataLoader\nfor x in DataLoader(d, num_workers=0):\n    pass"),
    ("OC230", "x.to(torch.float8_e5m2)", "x.cpu().to(torch.float8_e5m2)"),
    ("OC230", "kind = torch.float8_e5m2\nmodel.cast(storage_dtype=kind)", "model.cast(storage_dtype=torch.bfloat16)"),
    ("OC220", "x.cuda()  # opcheck: ignore[OC201]", "x.cuda()  # opcheck: ignore[OC201] on the cluster"),
    ("OC221", "x.cpu()  # opcheck: ignore[OC201] why", "x.cpu()  # opcheck: ignore[OC102] why"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "named", "silent"), LINES)
def test_a_rule_names_one_line_and_not_the_other(tmp_path: Path, rule: str, named: str, silent: str) -> None:
    assert rule in [code for code, _ in scan_text(tmp_path, named)]
    assert rule not in [code for code, _ in scan_text(tmp_path, silent)]


@pytest.mark.parametrize(
    ("line", "release", "printed"),
    [
        ("x.cuda()", "2.15", "AssertionError: Torch not compiled with CUDA enabled"),
        ("x.cuda(0)", "2.5", "RuntimeError: Invalid device, must be cuda device"),
        ("x.cuda(0)", "2.4", "AssertionError: Torch not compiled with CUDA enabled"),
        ('x.cuda("cuda:0")', "2.5", "AssertionError: Torch not compiled with CUDA enabled"),
        ("torch.cuda.Stream()", "2.10", "RuntimeError: torch.cuda.Stream requires CUDA support"),
        ("torch.cuda.Stream()", "2.9", "RuntimeError: Tried to instantiate dummy base class Stream"),
        ("torch.cuda.device(0)", "2.9", ""),
    ],
)
def test_what_a_mac_prints_is_that_of_the_release(tmp_path: Path, line: str, release: str, printed: str) -> None:
    target = Target(torch=Version.parse(release), macos=Version(15))
    (finding,) = report(tmp_path, target=target, program=f"import torch\n{line}\n").findings
    assert finding.prints == printed


@pytest.mark.parametrize(
    ("use", "severity"),
    [
        ("out = model(torch.ones(2))", "warning"),
        ("model.to(d)\nout = model(torch.ones(2))", "warning"),
        ("model = nn.DataParallel(m).to(d)", "warning"),
        ("out = model(torch.ones(2).to(d))", "note"),
    ],
)
def test_a_wrapper_is_a_warning_where_nothing_else_is_moved(tmp_path: Path, use: str, severity: str) -> None:
    program = f"from torch import nn\nimport torch\nm = m.to(d)\nmodel = nn.DataParallel(m)\n{use}\n"
    severities = {finding.severity for finding in report(tmp_path, program=program).findings if finding.rule == "OC228"}
    assert severities == {severity}


def test_complex_numbers_depend_on_the_target(tmp_path: Path) -> None:
    line = "y = torch.exp(1j * x)"
    assert scan_text(tmp_path, line, target=OLD) == [("OC212", 1)]
    assert scan_text(tmp_path, line) == []
    assert scan_text(tmp_path, "y = 1j * 2", target=OLD) == []
    assert scan_text(tmp_path, "torch.ones(2, dtype=torch.cfloat)", target=OLD) == [("OC212", 1)]


def test_float8_depends_on_the_target(tmp_path: Path) -> None:
    line = "x.to(torch.float8_e4m3fn)"
    assert scan_text(tmp_path, line, target=OLD) == [("OC230", 1)]
    assert scan_text(tmp_path, line) == []


@pytest.mark.parametrize(
    ("text", "is_unused"),
    [
        ("import triton\nprint(triton)", False),
        ("import triton", True),
        ("from triton import jit\n__all__ = ['jit']", False),
    ],
)
def test_an_import_that_nothing_reads_is_named(tmp_path: Path, text: str, is_unused: bool) -> None:
    (finding,) = report(tmp_path, target=TARGET, program=text).findings
    assert ("no line of this file uses it" in finding.message) == is_unused
    assert "no autotuning" in finding.hint


def test_the_name_and_the_cores_of_the_gpu_have_an_equivalent(tmp_path: Path) -> None:
    text = "import torch\nprint(torch.cuda.get_device_name(0), torch.cuda.get_device_properties(0))\n"
    name, properties = (each.hint for each in report(tmp_path, target=TARGET, program=text).findings)
    assert "torch.backends.mps.get_name()" in name
    assert "torch.backends.mps.get_core_count()" in properties


def test_each_rule_has_lines() -> None:
    assert {rule.id for rule in RULES} == {code for code, _, _ in LINES} | {"OC212", "OC231"}


def test_each_code_is_declared_once_and_in_order() -> None:
    files = Path(opcheck.source.rules.__file__).parent.glob("*.py")
    declared = re.findall(r'ule\(\s*(?:id=)?"(OC\d+)"', "".join(file.read_text("utf-8") for file in files))
    assert sorted(declared) == [rule.id for rule in RULES] == list(BY_ID)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_has_a_page_with_its_parts(rule: ScanRule) -> None:
    names = ["What", "Why", "Before", "After", "Fix", "Way out", "Evidence", "Since"]
    assert [part for part in re.findall(r"^\*\*(.+?)\.\*\*", rule.page, re.MULTILINE) if part in names] == names
    # What the page says of the fix is what the rule proposes.
    fix = rule.page.partition("**Fix.** ")[2]
    assert fix.startswith(rule.fix)
    assert rule.severity in SEVERITIES


def test_the_names_of_a_rule_leave_out_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aliases = "from torch.cuda import synchronize as s, is_bf16_supported as b\ns()\nif b(): x.half()\n"
    program = "\n".join([aliases, *(line for _, named, silent in LINES for line in (named, silent))])
    narrowed = scan_text(tmp_path, program, target=OLD)
    monkeypatch.setattr(signs, "RULES", [dataclasses.replace(rule, names={}) for rule in RULES])
    signs.find_rules.cache_clear()
    assert scan_text(tmp_path, program, target=OLD) == narrowed
    assert ("OC205", 2) in narrowed


def test_a_rule_is_left_out_where_the_source_lacks_its_words() -> None:
    def rules(text: str) -> set[str]:
        return {rule.id for rule in signs.find_rules(text, TARGET)[1]}

    assert "OC213" not in rules("x.cuda()\n")
    assert "OC213" in rules("x.pin_memory()\n")
    # Python reads these letters as pin_memory.
    assert "OC213" in rules("x.\uff50in_memory()\n")
    # Another file may bring its device.
    assert "OC201" not in rules("")
    assert "OC202" in rules("")


def test_autocast_of_the_device_that_a_program_chose_raises_before_torch_2_5(tmp_path: Path) -> None:
    line = 'torch.autocast(device.type, enabled=device.type != "cpu")'
    before = Target(torch=Version(2, 4), macos=Version(15))
    assert scan_text(tmp_path, line, target=before) == [("OC207", 1)]
    assert scan_text(tmp_path, line) == []
    guarded = f'x = nullcontext() if device.type == "mps" else {line}'
    assert scan_text(tmp_path, guarded, target=before) == []
    assert scan_text(tmp_path, "torch.autocast(kind, enabled=False)", target=before) == []


def test_no_two_rules_have_a_text_of_the_same_name() -> None:
    file = Path(opcheck.source.rules.__file__).parent.with_name("rules.toml")
    declared = documents.from_toml(documents.read_text(file))
    names = [name for entry in declared.values() for name in entry.get("texts", ())]
    assert len(names) == len(set(names))


def test_each_rule_says_why_a_finding_has_no_fix() -> None:
    assert [rule.id for rule in RULES if not rule.no_fix] == [], "rules.toml: no_fix"


def test_a_rule_may_name_its_node_as_it_likes() -> None:
    def find_calls(call: ast.Call, _scanned: Scanned) -> Iterator[Hit]:
        yield from ()

    assert declare("OC201")(find_calls).nodes == (ast.Call,)
