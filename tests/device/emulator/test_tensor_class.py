"""A tensor and a parameter on the device are torch's own classes, or the program's, as on a Mac."""

from __future__ import annotations

import copy
import io
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from opcheck.capture.child.extensions import prepare_torchvision

pytestmark = pytest.mark.usefixtures("mac")


class Sub(torch.Tensor):
    """A subclass without hooks of its own."""


class Logging(torch.Tensor):
    """torch's documentation, "Extending torch with a Tensor-like type"."""

    seen: list[str] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Scaled(torch.Tensor):
    """A wrapper that takes itself apart, as those of torchao do (torchao/utils.py, TorchAOBaseTensor)."""

    _values: torch.Tensor  # type: ignore[assignment]

    @staticmethod
    def __new__(cls: Any, values: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype, device=values.device)

    def __init__(self, values: torch.Tensor) -> None:
        self._values = values

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """With this Module.to exchanges the whole tensor (torch/nn/modules/module.py)."""
        return ["_values"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, *_: Any) -> Scaled:
        return Scaled(inner["_values"])

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (torch.ops.aten.detach.default, torch.ops.aten._to_copy.default):
            return cls(func(args[0]._values, **kwargs))
        plain = [arg._values * 2 if isinstance(arg, cls) else arg for arg in args]
        return func(*plain, **kwargs)


def there(*shape: int) -> torch.Tensor:
    return torch.ones(*shape or (2,), device="mps")


def test_the_class_is_torchs_own() -> None:
    """Libraries ask ``type(x) is torch.Tensor``: torch/_tensor.py and torch/nn/parameter.py do."""
    x = there()
    weight = nn.Linear(2, 2).to("mps").weight
    assert type(x) is type(x + 1) is type(torch.ones(2).to("mps")) is type(x.data) is torch.Tensor
    assert type(weight) is type(nn.Parameter(x)) is nn.Parameter
    assert x.__class__ is torch.Tensor
    assert (x.is_mps, x.is_cpu, x.get_device(), x.device.index) == (True, False, 0, 0)
    with pytest.raises(AttributeError, match="no attribute 'mps'"):
        x.mps()  # type: ignore[attr-defined]


def test_the_methods_of_the_class_are_those_that_hooks_compare_with() -> None:
    """torchvision/tv_tensors/_torch_function_helpers.py and torchao keep ``torch.Tensor.to`` in tables."""
    base: Any = torch._C.TensorBase
    assert torch.Tensor.to is base.to
    assert torch.Tensor.device is base.device
    assert torch.Tensor.to(torch.ones(2), "mps").is_mps


def test_a_legacy_type_is_of_no_mps_tensor() -> None:
    """torch/csrc/tensor/python_tensor.cpp, Tensor_instancecheck, compares the dispatch key."""
    assert not isinstance(there(), torch.FloatTensor)
    assert isinstance(torch.ones(2), torch.FloatTensor)


def test_type_as_moves() -> None:
    """aten/src/ATen/native/TensorConversions.cpp, type_as: ``self.to(other.options())``."""
    x, y = there(), torch.ones(2, dtype=torch.float16)
    assert y.type_as(x).is_mps
    assert x.type_as(y).device.type == "cpu"
    assert x.type_as(y).dtype is torch.float16


def test_the_name_of_the_type_is_taken_back_by_nothing() -> None:
    """github.com/pytorch/pytorch/issues/118517; torch/csrc/utils/tensor_types.cpp, options_from_string."""
    with pytest.raises(ValueError, match=r"invalid type: 'torch\.mps\.FloatTensor'"):
        torch.ones(2).type(there().type())
    with pytest.raises(ValueError, match=r"invalid type: 'torch\.mps\.FloatTensor'"):
        there().type("torch.mps.FloatTensor")
    assert there().type(torch.float16).is_mps
    assert there().type("torch.FloatTensor").device.type == "cpu"


def test_any_index_is_the_same_device() -> None:
    """MPS has one device: MPSAllocator.mm allocates on mps:0, MPSGuardImpl.h looks at no index."""
    assert str(torch.ones(2, device="mps:1").device) == "mps:0"
    assert str(torch.ones(2).to("mps:1").device) == "mps:0"
    assert str(nn.Linear(2, 2).to("mps:1").weight.device) == "mps:0"
    x = there()
    assert x.to("mps:0") is x
    assert x.to("mps:1") is not x


def test_copies_to_the_host() -> None:
    x = there()
    assert torch.as_tensor(x) is x
    assert torch.as_tensor(x, device="cpu").device.type == "cpu"
    assert torch.asarray(x, device="cpu").device.type == "cpu"
    assert torch.asarray(torch.ones(2), device="mps").is_mps
    assert x.new_zeros(2).is_mps
    assert x.new_zeros(2, device="cpu").device.type == "cpu"
    assert x.numpy(force=True).tolist() == [1, 1]
    with pytest.raises(TypeError, match="can't convert mps:0 device type tensor to numpy"):
        np.asarray(x)


def test_data_exchanges_in_place() -> None:
    parameter = nn.Parameter(torch.ones(2))
    parameter.data = torch.zeros(3, device="mps")
    assert (parameter.device.type, parameter.tolist()) == ("mps", [0, 0, 0])
    parameter.data = torch.ones(4)
    assert (parameter.device.type, parameter.tolist()) == ("cpu", [1, 1, 1, 1])
    assert type(parameter) is nn.Parameter


@pytest.mark.parametrize(("tensor", "grad"), [("cpu", "mps"), ("mps", "cpu")])
def test_a_gradient_of_another_device(tensor: str, grad: str) -> None:
    """torch/csrc/autograd/python_variable.cpp, THPVariable_set_grad."""
    parameter = nn.Parameter(torch.ones(2, device=tensor))
    text = f"device type '{grad}' to a tensor with device type '{tensor}'"
    with pytest.raises(RuntimeError, match=text):
        parameter.grad = torch.ones(2, device=grad)


def test_pickles_and_files() -> None:
    file = io.BytesIO()
    torch.save({"x": there(), "weight": nn.Parameter(there())}, file)
    file.seek(0)
    loaded = torch.load(file)
    assert (loaded["x"].device.type, type(loaded["weight"])) == ("mps", nn.Parameter)
    assert pickle.loads(pickle.dumps(there())).is_mps  # noqa: S301
    assert copy.deepcopy(there()).is_mps
    sub = pickle.loads(pickle.dumps(there().as_subclass(Sub)))  # noqa: S301
    assert (type(sub), sub.device.type) == (Sub, "mps")


def test_a_subclass_is_kept() -> None:
    assert type(Sub(torch.ones(2))) is Sub
    moved = Sub(torch.ones(2)).to("mps")
    assert (type(moved), moved.device.type) == (Sub, "mps")
    assert (type(moved + 1), (moved + 1).tolist()) == (Sub, [2, 2])
    assert type(moved.cpu()) is Sub
    assert repr(there().as_subclass(Sub)) == "Sub([1., 1.], device='mps:0')"
    assert (torch.Tensor._make_subclass(Sub, there()) * 3).tolist() == [3, 3]


def test_a_subclass_and_gradients() -> None:
    x = torch.ones(2, device="mps", requires_grad=True)
    (x.as_subclass(Sub) * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2]


def test_a_hook_of_a_subclass_goes_first() -> None:
    Logging.seen.clear()
    x = torch.ones(2).as_subclass(Logging).to("mps")
    y = torch.relu(x + 1)
    assert (type(y), y.device.type) == (Logging, "mps")
    assert Logging.seen == ["to", "add", "relu"]


def test_a_parameter_of_a_subclass_with_attributes() -> None:
    class Weight(nn.Parameter):
        pass

    layer = nn.Linear(2, 2)
    layer.weight = weight = Weight(layer.weight.data)
    weight.loader = "rows"  # type: ignore[attr-defined]
    layer.to("mps")
    assert layer.weight is weight
    assert weight.is_mps
    assert weight.loader == "rows"  # type: ignore[attr-defined]


def test_a_wrapper_takes_itself_apart() -> None:
    scaled = Scaled(torch.ones(3, 2)).to("mps")
    assert isinstance(scaled, Scaled)
    assert (scaled.device.type, scaled._values.device.type) == ("mps", "mps")
    assert F.linear(there(1, 2), scaled).tolist() == [[4, 4, 4]]
    layer = nn.Linear(2, 3, bias=False)
    layer.weight = nn.Parameter(Scaled(torch.ones(3, 2)), requires_grad=False)
    layer.to("mps")
    assert layer(there(1, 2)).tolist() == [[4, 4, 4]]


def test_tv_tensors() -> None:
    prepare_torchvision()
    tv_tensors = pytest.importorskip("torchvision.tv_tensors")
    v2 = pytest.importorskip("torchvision.transforms.v2.functional")
    image = tv_tensors.Image(torch.zeros(3, 4, 4, dtype=torch.uint8)).to("mps")
    boxes = tv_tensors.BoundingBoxes(torch.tensor([[0.0, 1, 2, 3]]), format="XYXY", canvas_size=(4, 4)).to("mps")
    assert type(v2.horizontal_flip(image)) is tv_tensors.Image
    flipped = v2.horizontal_flip(boxes)
    assert (type(flipped), flipped.canvas_size) == (tv_tensors.BoundingBoxes, (4, 4))
    assert flipped.tolist() == [[2, 1, 4, 3]]


def test_references_and_keys() -> None:
    x = there()
    assert weakref.ref(x)() is x
    assert {x: 1}[x] == 1
    assert hash(x) == id(x)
