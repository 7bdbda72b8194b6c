"""float64 that NumPy brings to MPS: NumPy and torch on this CPU say which lines move it, the scan must name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.source.reading import report

_HEAD = "import numpy as np\nimport torch\nx = np.random.rand(3)\nf = x.astype(np.float32)\nn = np.arange(3)\n"
#: The last line moves one tensor; names bound above each are x (float64), f (float32) and n (int64).
SNIPPETS = r"""
torch.from_numpy(np.random.rand(3)).to("mps")
torch.tensor(np.mean(x)).to(device)
torch.as_tensor(x, device=device)
torch.from_numpy(n.astype(np.float64)).to(device)
torch.from_numpy(np.zeros((2, 2))).unsqueeze(0).to(device)
torch.from_numpy(np.zeros((2, 2), dtype=np.float32)).to(device)
torch.from_numpy(np.zeros((2, 2), np.float32)).to(device)
torch.from_numpy(x).float().to(device)
torch.from_numpy(x).to(device, torch.float32)
torch.from_numpy(x).to(torch.float32).to(device)
torch.tensor(x, dtype=torch.float32, device=device)
torch.tensor(x, device=device)
torch.tensor(0.5, device=device)
torch.tensor([0.5, 1.5]).to(device)
torch.tensor(np.array([0.5, 1.5])).to(device)
torch.tensor([np.float64(2)]).to(device)
torch.tensor(float(np.mean(x))).to(device)
torch.tensor(x.tolist()).to(device)
torch.tensor(np.mean(f)).to(device)
torch.tensor(np.mean(n)).to(device)
torch.from_numpy(f * 2.0).to(device)
torch.from_numpy(f * np.pi).to(device)
torch.from_numpy(f * np.sqrt(2)).to(device)
torch.from_numpy(f * x).to(device)
torch.from_numpy(f + n).to(device)
torch.from_numpy(n / 2).to(device)
torch.from_numpy(n // 2).to(device)
torch.from_numpy(n).to(device)
torch.from_numpy(np.linspace(0, 1, 5)[None]).to(device)
torch.from_numpy(np.arange(0, 1, 0.1)).to(device)
torch.from_numpy(np.arange(5)).to(device)
torch.from_numpy(np.stack([x, x])).permute(1, 0).to(device)
torch.from_numpy(np.stack([f, f])).to(device)
torch.stack([torch.from_numpy(x), torch.from_numpy(x)]).to(device)
torch.from_numpy(np.random.default_rng(0).normal(size=3)).to(device)
torch.from_numpy(np.random.randn(3).astype("float32")).to(device)
torch.from_numpy(np.eye(3)[:2].T.copy()).to(device)
torch.tensor(np.where(n > 0, 1.0, 0.0)).to(device)
torch.tensor(np.argmax(x)).to(device)
torch.tensor(np.full((2,), 0.5)).to(device)
torch.Tensor(x).to(device)
torch.tensor(x.std()).to(device)
torch.from_numpy(x.astype(complex)).to(device)
torch.tensor(f.mean() * 2.0).to(device)
x = x.astype(np.float32); torch.from_numpy(x).to(device)
w = np.hanning(4); w /= w.sum(); torch.from_numpy(w).to(device)
f *= 2.0; torch.from_numpy(f).to(device)
t = torch.from_numpy(x); t = t * 2; t.to(device=device)
rows = [np.ones(2) for _ in range(3)]; torch.tensor(np.array(rows)).to(device)
def load(): return np.zeros(3); \n\ntorch.from_numpy(load()).to(device)
def move(a): return torch.from_numpy(a).to(device); \n\nmove(np.random.rand(2))
def move(a): return torch.from_numpy(a).to(device); \n\nmove(f)
torch.from_numpy(x).to("cpu")
torch.from_numpy(np.asarray([1, 2, 3]) * 0.1).to(device)
torch.from_numpy(np.concatenate([f, np.zeros(1)])).to(device)
torch.from_numpy(np.clip(f, 0, 1)).to(device)
torch.from_numpy(np.exp(n)).to(device)
torch.from_numpy((f - f.mean()) / f.std()).to(device)
torch.from_numpy((f - np.array([0.485, 0.456, 0.406])) / np.array([0.2, 0.2, 0.2])).to(device)
torch.from_numpy(np.linalg.inv(np.eye(2))).to(device)
torch.from_numpy(x if n[0] else np.ones(3)).to(device)
torch.from_numpy(np.float32(x)).to(device)
torch.from_numpy(x.reshape(1, 3)).contiguous().half().to(device)
torch.from_numpy(np.fft.fft(x)).to(device)
torch.tensor(np.sin(0.5), device=device)
torch.as_tensor(np.pi, device=device)
torch.from_numpy(x @ x.reshape(3, 1)).to(device)
torch.from_numpy(x.dot(np.eye(3))).to(device)
torch.from_numpy(x ** 2).to(device)
torch.from_numpy(-x).to(device)
torch.tensor(np.random.choice([0.1, 0.2], 3)).to(device)
torch.tensor(np.random.randint(0, 3, 3)).to(device)
a, b = np.zeros(3), np.ones(3, dtype=np.float32); torch.from_numpy(a).to(device); torch.from_numpy(b).to(device)
class D: pass; d = D(); d.x = x; torch.from_numpy(d.x.astype("f8")).to(device)
torch.from_numpy(np.array([1., 2.], dtype=float)).to(device)
torch.from_numpy(np.uint8([1, 2]) / 255).to(device)
torch.from_numpy(np.uint8([1, 2]) * np.float32(0.5)).to(device)
torch.from_numpy((np.random.rand(2) > 0.5)).to(device)
torch.from_numpy((np.random.rand(2) * 255).astype(np.uint8)).to(device)
torch.tensor((x > 0.5).mean()).to(device)
torch.tensor(np.mean([1, 2, 3])).to(device)
torch.tensor(len(x)).to(device)
torch.tensor([x[0], x[1]]).to(device)
torch.tensor((0.5, x[0])).to(device)
torch.tensor([i / 3 for i in range(3)]).to(device)
torch.tensor([v * 2 for v in x]).to(device)
torch.from_numpy(np.outer(x, f)).to(device)
torch.from_numpy(np.outer(f, f)).to(device)
torch.from_numpy(np.einsum("i,i->i", x, x)).to(device)
torch.from_numpy(np.power(10000, -np.arange(0, 4, 2) / 4)).to(device)
p = np.arange(4)[:, None]; d = np.exp(np.arange(0, 4, 2) * -(np.log(10000.0) / 4)); torch.from_numpy(np.sin(p * d)).to(device)
e = np.zeros((2, 2)); e[:, 0] = f[:2]; torch.from_numpy(e).unsqueeze(0).to(device)
torch.from_numpy(np.expand_dims(f, 0)).to(device)
torch.tensor(np.quantile(f, 0.5)).to(device)
torch.tensor(np.percentile(x, 50)).to(device)
torch.tensor(np.clip(np.mean(f), 0, 1)).to(device)
torch.tensor(np.linalg.norm(f)).to(device)
torch.tensor(np.linalg.norm(x)).to(device)
torch.from_numpy(np.meshgrid(x, x)[0]).to(device)
xx, yy = np.meshgrid(x, x); torch.from_numpy(xx).to(device)
torch.from_numpy(np.stack(np.meshgrid(np.arange(2), np.arange(2)))).to(device)
torch.from_numpy(np.bincount(n)).to(device)
torch.from_numpy(np.nan_to_num(x)).type(torch.float32).to(device)
torch.from_numpy(x).type(torch.FloatTensor).to(device)
torch.from_numpy(x).type_as(torch.ones(1)).to(device)
torch.from_numpy(x).to(torch.ones(1)).to(device)
torch.from_numpy(x).to(device=device, dtype=torch.float32)
torch.from_numpy(x).to(device).float()
(torch.from_numpy(x) / 2).to(device)
(torch.from_numpy(x) * torch.ones(3)).to(device)
(torch.ones(3) * x[0]).to(device)
torch.from_numpy(np.empty((3,)).astype(np.float16)).to(device)
torch.from_numpy(np.asarray(x, dtype="float32")).to(device)
dt = np.float32; torch.from_numpy(np.zeros(3, dtype=dt)).to(device)
dt = np.float64; torch.from_numpy(np.zeros(3, dtype=dt)).to(device)
torch.from_numpy(np.zeros(3, dtype=f.dtype)).to(device)
torch.from_numpy(f.cumsum()).to(device)
torch.from_numpy(n.cumsum() / n.sum()).to(device)
y = f; y = y / np.linalg.norm(x); torch.from_numpy(y).to(device)
y = f; y = y / y.sum(); torch.from_numpy(y).to(device)
torch.Tensor(np.random.rand(3)).to(device)
torch.FloatTensor(x).to(device)
torch.full((2,), np.mean(x)).to(device)
torch.from_numpy(np.float64(x)).to(device)
torch.tensor(np.float64(0.5)).to(device)
torch.tensor(0.5 * np.float32(2)).to(device)
torch.tensor(np.round(x, 2)).to(device)
torch.from_numpy(np.array(np.ones(2), dtype=np.int64)).to(device)
torch.from_numpy(np.random.permutation(5)).to(device)
torch.from_numpy(np.random.permutation(x)).to(device)
torch.from_numpy(np.random.uniform(0, 1, size=(2, 3)).astype(np.float32)).to(device)
torch.from_numpy(np.vstack([f, n])).to(device)
torch.from_numpy(np.full(3, 1)).to(device)
torch.from_numpy(np.full(3, 1.0, dtype=np.float32)).to(device)
torch.from_numpy(np.full_like(f, 2.0)).to(device)
torch.from_numpy(np.tile(np.eye(2), (2, 1))).to(device)
torch.from_numpy(np.array([[1, 0.5], [0, 1]])).to(device)
torch.from_numpy(np.array([[1, 0], [0, 1]])).to(device)
torch.from_numpy(np.array([1, 2, 3])).float().to(device)
for q in [x, x]: torch.from_numpy(q).to(device)
with torch.no_grad(): t = torch.from_numpy(x).to(device)
if n[1]: x = x.astype(np.float32); \n\ntorch.from_numpy(x).to(device)
q = []; q.append(x); q.append(x); torch.from_numpy(np.stack(q)).to(device)
q = []; q.append(f); torch.from_numpy(np.stack(q)).to(device)
q = []; q.append(n[0]); q.extend([1, 2]); torch.tensor(np.array(q)).to(device)
d = {"x": x, "f": f}; torch.from_numpy(d["x"]).to(device)
d = {"x": x, "f": f}; torch.from_numpy(d["f"]).to(device)
d = {"x": x}; d["x"] = f; torch.from_numpy(d["x"]).to(device)
def make(k, dtype=np.float64): return np.zeros(k, dtype=dtype); \n\ntorch.from_numpy(make(3)).to(device)
def make(k, dtype=np.float64): return np.zeros(k, dtype=dtype); \n\ntorch.from_numpy(make(3, np.float32)).to(device)
torch.from_numpy(np.uint8([1, 2]) * 0.5).to(device)
torch.from_numpy(np.uint8([1, 2]) / 255.0).to(device)
torch.from_numpy(np.float16([1, 2]) * 0.5).to(device)
torch.from_numpy(np.mgrid[0:1:5j, 0:1:5j]).to(device)
torch.from_numpy(np.mgrid[0:1:0.5]).to(device)
torch.from_numpy(np.mgrid[0:5, 0:5]).to(device)
q, r = np.linalg.qr(np.eye(3)); torch.from_numpy(r).to(device)
q, r = np.linalg.qr(np.eye(3, dtype=np.float32)); torch.from_numpy(q).to(device)
u, s, v = np.linalg.svd(np.ones((2, 2))); torch.from_numpy(s).to(device)
torch.from_numpy(np.cov(np.stack([f, f]))).to(device)
torch.from_numpy(np.gradient(f)).to(device)
torch.from_numpy(np.gradient(n)).to(device)
torch.from_numpy(np.fft.fftfreq(8)).to(device)
torch.from_numpy(np.convolve(np.hanning(5), np.ones(3), "same")).to(device)
torch.from_numpy(np.convolve(f, np.ones(3, dtype=np.float32), "same")).to(device)
torch.from_numpy(np.frombuffer(bytearray(8))).to(device)
torch.from_numpy(np.frombuffer(bytearray(8), np.uint8)).to(device)
torch.from_numpy(np.loadtxt(["1 2"])).to(device)
torch.from_numpy(np.loadtxt(["1 2"], np.float32)).to(device)
torch.from_numpy(np.zeros_like(x)).to(device)
torch.from_numpy(np.zeros_like(x, np.float32)).to(device)
torch.from_numpy(np.random.poisson(1.0, 3)).to(device)
torch.from_numpy(np.nanmedian(np.stack([x, x]), axis=0)).to(device)
t = torch.zeros(3, dtype=torch.float32); t.to(device)
torch.from_numpy(np.histogram(x)[1]).to(device)
torch.from_numpy(np.histogram(x)[0]).to(device)
torch.from_numpy(np.histogram(f)[1]).to(device)
h, e = np.histogram(x); torch.tensor(h / h.sum()).to(device)
u, c = np.unique(x, return_counts=True); torch.from_numpy(u).to(device)
u, c = np.unique(x, return_counts=True); torch.from_numpy(c).to(device)
u = np.unique(x, return_counts=True); torch.from_numpy(u[1]).to(device)
torch.tensor({"a": x}["a"]).to(device)
torch.tensor([f, x][0]).to(device)
def two(): return x, f; \n\na, b = two(); torch.from_numpy(a).to(device)
def two(): return x, f; \n\na, b = two(); torch.from_numpy(b).to(device)
def two(): return {"x": x, "f": f}; \n\nd = two(); torch.from_numpy(d["x"]).to(device)
def two(): return {"x": x, "f": f}; \n\nd = two(); torch.from_numpy(d["f"]).to(device)
d = {}; d["x"] = x; torch.tensor(d["x"]).to(device)
d = {"x": x}; d["x"] = d["x"].astype(np.float32); torch.tensor(d["x"]).to(device)
d = {"x": x}; d.update(x=f); torch.tensor(d["x"]).to(device)
a, *b = x, f; torch.from_numpy(b[0]).to(device)
m, e = np.frexp(x); torch.from_numpy(e).to(device)
m, e = np.frexp(x); torch.from_numpy(2.0 - e).to(device)
torch.from_numpy(np.polyfit(f, f, 1)).to(device)
torch.from_numpy(np.abs(np.fft.rfft(x))).to(device)
torch.from_numpy(np.abs(np.fft.rfft(f))).to(device)
p, q = np.split(np.eye(2), 2); torch.from_numpy(q).to(device)
p, q = np.split(np.eye(2, dtype=np.float32), 2); torch.from_numpy(q).to(device)
for p, q in zip(np.eye(2), np.eye(2, dtype=np.float32)): torch.from_numpy(p).to(device)
for p, q in zip(np.eye(2), np.eye(2, dtype=np.float32)): torch.from_numpy(q).to(device)
for i, p in enumerate(np.eye(2)): torch.from_numpy(p).to(device)
for i, p in enumerate(np.eye(2)): torch.tensor(i).to(device)
torch.utils.data.default_collate([x, x]).to(device)
torch.utils.data.default_collate([f, f]).to(device)
""".strip().splitlines()
#: They move float64, and the scan does not see it.
UNSEEN = r"""
torch.tensor(sum(x)).to(device)
torch.tensor(np.array([i for i in range(3)]) / 3).to(device)
torch.tensor(np.quantile(f, [0.5, 0.6])).to(device)
torch.tensor([1.0]).to(torch.from_numpy(x).dtype).to(device)
z = None; z = np.zeros(2) if z is None else z; torch.from_numpy(z).to(device)
""".strip().splitlines()
#: moves what a fitted model has
CENTERS = "torch.from_numpy(k.cluster_centers_).to('mps')"
#: Programs of other libraries, and whether the last line moves float64.
ELSEWHERE = {
    "from scipy.signal import get_window; torch.from_numpy(get_window('hann', 8)).to('mps')": True,
    "from sklearn.datasets import make_moons; a, b = make_moons(9); torch.from_numpy(a).to('mps')": True,
    "from sklearn.datasets import make_moons; a, b = make_moons(9); torch.from_numpy(b).to('mps')": False,
    "from sklearn.preprocessing import StandardScaler; a = StandardScaler().fit_transform(x); torch.tensor(a).to('mps')": True,
    "from sklearn.preprocessing import StandardScaler; a = StandardScaler().fit_transform(f); torch.tensor(a).to('mps')": False,
    "from sklearn.preprocessing import LabelEncoder; a = LabelEncoder().fit_transform(x); torch.tensor(a).to('mps')": False,
    "from sklearn.feature_extraction.text import TfidfVectorizer; a = TfidfVectorizer().fit_transform(['ab cd']).toarray(); torch.tensor(a).to('mps')": True,
    "from sklearn.feature_extraction.text import TfidfVectorizer; a = TfidfVectorizer(dtype=np.float32).fit_transform(['ab cd']).toarray(); torch.tensor(a).to('mps')": False,
    "from sklearn.feature_extraction.text import CountVectorizer; a = CountVectorizer().fit_transform(['ab cd']).toarray(); torch.tensor(a).to('mps')": False,
    "import cv2; a = cv2.imread('a.png') / 255.0; torch.from_numpy(a).to('mps')": True,
    "import cv2; a = cv2.imread('a.png'); torch.from_numpy(a).to('mps')": False,
    "from sklearn.decomposition import PCA; a = PCA(1).fit_transform(np.eye(3)); torch.from_numpy(a).to('mps')": True,
    f"from sklearn.cluster import KMeans; k = KMeans(2).fit(np.eye(3)); {CENTERS}": True,
    f"from sklearn.cluster import KMeans; k = KMeans(2); k.fit(np.eye(3)); {CENTERS}": True,
    f"from sklearn.cluster import KMeans; k = KMeans(2).fit(f[:, None]); {CENTERS}": False,
    f"class A:;    def fit(self, a): pass; k = A(); k.fit(np.eye(3)); {CENTERS}": False,
    "from scipy.io import wavfile; r, a = wavfile.read('a.wav'); torch.from_numpy(a / 32768).to('mps')": True,
    "from scipy.io import wavfile; r, a = wavfile.read('a.wav'); torch.from_numpy(a).to('mps')": False,
    (
        "from scipy.io import wavfile; r, a = wavfile.read('a.wav'); "
        "torch.from_numpy(a.astype('float32') / 32768).to('mps')"
    ): False,
    "import soundfile; a, r = soundfile.read('a.wav'); torch.from_numpy(a).to('mps')": True,
    "import soundfile; a, r = soundfile.read('a.wav', dtype='float32'); torch.from_numpy(a).to('mps')": False,
    "import pandas as pd; a = pd.read_csv('a.csv'); torch.tensor(a['b'].astype(float).values).to('mps')": True,
    "import pandas as pd; a = pd.read_csv('a.csv'); torch.tensor(a['b'].to_numpy(dtype=np.float64)).to('mps')": True,
    "import pandas as pd; a = pd.read_csv('a.csv'); torch.tensor(a['b'].to_numpy(np.float32)).to('mps')": False,
    "from sklearn.linear_model import Ridge; m = Ridge().fit(np.eye(3), x); torch.from_numpy(m.coef_).to('mps')": True,
    "from sklearn.linear_model import Ridge; m = Ridge().fit(f[:, None], f); torch.from_numpy(m.coef_).to('mps')": False,
    "from sklearn.svm import SVC; m = SVC().fit(np.eye(3), n); torch.tensor(m.decision_function(f)).to('mps')": True,
    "from sklearn.datasets import load_iris; a = load_iris(); torch.tensor(a.data).to('mps')": True,
    "from sklearn.datasets import load_iris; a = load_iris(); torch.tensor(a.target).to('mps')": False,
    "from scipy.special import softmax; torch.from_numpy(softmax(x)).to('mps')": True,
    "from scipy.special import softmax; torch.from_numpy(softmax(f)).to('mps')": False,
    (
        "from scipy.spatial.transform import Rotation; "
        "torch.tensor(Rotation.from_euler('x', 90).as_matrix()).to('mps')"
    ): True,
    "import numpy.typing as npt; def g(a: npt.NDArray[np.float64]): torch.from_numpy(a).to('mps')": True,
    "import numpy.typing as npt; def g(a: npt.NDArray[np.float32]): torch.from_numpy(a).to('mps')": False,
}  # fmt: skip
_WIDE = {torch.float64, torch.complex128}


def _program(snippet: str, device: str) -> str:
    return f'{_HEAD}device = "{device}"\n' + snippet.replace("; ", "\n").replace("\\n", "\n") + "\n"


def _moves_float64(snippet: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the snippet on the CPU and see the dtypes of what it gives to the device."""
    moved: list[torch.dtype] = []
    to, cpu = torch.Tensor.to, torch.device("cpu")
    made = {name: getattr(torch, name) for name in ("tensor", "as_tensor")}

    def is_there(given: object) -> bool:
        return given in {"mps", torch.device("meta")}

    def record_to(self: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        given = [*args, *options.values()]
        result = to(self, *(part for part in given if not is_there(part)))
        if any(map(is_there, given)):
            moved.append(result.dtype)
        return result

    def record(name: str) -> Any:
        def make(*args: Any, **options: Any) -> torch.Tensor:
            device = options.pop("device", cpu)
            result: torch.Tensor = made[name](*args, **options)
            if is_there(device):
                moved.append(result.dtype)
            return result

        return make

    monkeypatch.setattr(torch.Tensor, "to", record_to)
    for name in made:
        monkeypatch.setattr(torch, name, record(name))
    exec(compile(_program(snippet, "mps"), "snippet", "exec"), {})  # noqa: S102  (the snippets above)
    return bool(_WIDE.intersection(moved))


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_what_the_scan_names_raises_on_a_mac(snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = report(tmp_path, a=_program(snippet, "mps")).findings
    assert [each.rule for each in findings if each.severity == "error"] == ["OC210"] * _moves_float64(
        snippet, monkeypatch
    )


@pytest.mark.parametrize("program", ELSEWHERE)
def test_arrays_of_other_libraries_have_their_dtypes(program: str, tmp_path: Path) -> None:
    findings = report(tmp_path, a=_program(program, "mps")).findings
    assert [each.rule for each in findings if each.severity == "error"] == ["OC210"] * ELSEWHERE[program]


@pytest.mark.parametrize(("dtype", "severities"), [("float64", ["error", "note"]), ("float32", [])])
def test_a_wide_tensor_of_torch_that_moves_is_an_error(tmp_path: Path, dtype: str, severities: list[str]) -> None:
    findings = report(tmp_path, a=f'import torch\ntorch.zeros(2, dtype=torch.{dtype}).to("mps")\n').findings
    assert sorted(each.severity for each in findings) == severities


@pytest.mark.parametrize(("device", "severity"), [('"mps"', "warning"), ("device", "warning"), ('"cpu"', "note")])
def test_a_wide_tensor_on_a_default_device_need_not_stay_on_the_cpu(tmp_path: Path, device: str, severity: str) -> None:
    text = f"import torch\ndevice = g()\ntorch.set_default_device({device})\nx = torch.zeros(2, dtype=torch.float64)\n"
    assert [each.severity for each in report(tmp_path, a=text).findings] == [severity]


def test_four_of_five_lines_that_raise_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named, unseen = (
        [snippet for snippet in snippets if _is_wide(snippet, monkeypatch)] for snippets in (SNIPPETS, UNSEEN)
    )
    assert unseen == UNSEEN
    assert not any(report(tmp_path, a=_program(snippet, "mps")).findings for snippet in UNSEEN)
    assert len(named) / (len(named) + len(unseen)) >= 0.8
    assert len(SNIPPETS) - len(named) >= 20


def _is_wide(snippet: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    with monkeypatch.context() as patches:
        return _moves_float64(snippet, patches)


@pytest.mark.parametrize(
    ("device", "severities"),
    [('"cpu"', []), ("make()", ["warning"]), ('torch.device("mps")', ["error"]), ('"cuda"', ["warning"])],
)
def test_the_device_decides(tmp_path: Path, device: str, severities: list[str]) -> None:
    text = f"{_HEAD}device = {device}\ntorch.from_numpy(x).to(device)\n"
    findings = report(tmp_path, a=text).findings
    assert [each.severity for each in findings if each.rule == "OC210"] == severities


def test_an_array_that_stays_on_the_cpu_is_no_finding(tmp_path: Path) -> None:
    assert np.zeros(1).dtype == np.float64
    assert not report(tmp_path, a=f"{_HEAD}torch.from_numpy(x)\ntorch.tensor(x).cpu()\n").findings
