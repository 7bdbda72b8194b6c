from __future__ import annotations

import pytest

from opcheck.common.errors import UsageError
from opcheck.data import composites
from opcheck.data.registrations import OpLists
from opcheck.lookup.answer_words import WITHOUT_OPERATORS, WORDS
from opcheck.lookup.query import resolve, usual


@pytest.mark.parametrize(
    ("text", "main"),
    [
        ("aten::nonzero", "aten::nonzero"),
        ("aten::isin.Tensor_Tensor_out", "aten::isin.Tensor_Tensor_out"),
        ("isin", "aten::isin.Tensor_Tensor"),
        ("aten.add.Tensor", "aten::add.Tensor"),
        ("torch.ops.aten.mm.default", "aten::mm"),
        ("torch.fft.rfft", "aten::fft_rfft"),
        ("torch.linalg.svd", "aten::linalg_svd"),
        ("F.gelu", "aten::gelu"),
        ("torch.nn.functional.gelu", "aten::gelu"),
        ("Tensor.masked_fill_", "aten::masked_fill_.Tensor"),
        ("torch.add", "aten::add.Tensor"),
        ("nn.functional.grid_sample", "aten::grid_sampler"),
        ("torchvision::nms", "torchvision::nms"),
        ("nms", "torchvision::nms"),
        ("torchvision.ops.boxes.nms", "torchvision::nms"),
        ("nn.LSTM", "nn.LSTM"),
        ("torch.nn.modules.rnn.LSTM", "nn.LSTM"),
        ("GroupNorm", "nn.GroupNorm"),
        ("nn.Relu", "nn.ReLU"),
        ("layernorm", "aten::layer_norm"),
        ("grid sample", "aten::grid_sampler"),
        ("batchnorm2d", "nn.BatchNorm2d"),
        ("sdpa", "aten::scaled_dot_product_attention"),
        ("rotary embedding", "rope"),
        ("F.interpolate", "nn.functional.interpolate"),
        ("torch.optim.adamw.AdamW", "optim.AdamW"),
        ("Tensor.__getitem__", "Tensor.__getitem__"),
        ("torch.functional.unique", "unique"),
        ("add.out", "aten::add.out"),
        ("torchvision.ops.RoIAlign", "torchvision::roi_align"),
        ("torchvision.ops.batched_nms", "torchvision::nms"),
        ("torchaudio.functional.rnnt_loss", "torchaudio::rnnt_loss_forward"),
        ("torch.distributions.Gamma", "distributions.Gamma"),
    ],
)
def test_names_are_understood(text: str, main: str, lists: OpLists) -> None:
    result = resolve(text, lists)
    assert result.main in result.overloads
    assert (result.main.partition(".")[0], result.asked) == (main.partition(".")[0], text)


def test_a_base_name_means_all_overloads_over_all_releases(lists: OpLists) -> None:
    result = resolve("aten::isin", lists)
    assert result.main == "aten::isin.Tensor_Tensor"
    assert len(result.overloads) == 6


def test_a_plain_call_reaches_no_out_overload() -> None:
    assert usual(["aten::max.out", "aten::max.names_dim", "aten::max", "aten::max.dim"]) == "aten::max"
    assert usual(["aten::add.out", "aten::add.Scalar", "aten::add.Tensor"]) == "aten::add.Tensor"
    assert usual(["aten::_foreach_add.Tensor", "aten::_foreach_add.List"]).endswith(".List")
    assert usual(["aten::isin.Tensor_Tensor_out"]) == "aten::isin.Tensor_Tensor_out"


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("aten::isinn", "aten::isin"),
        ("torch.fft.rffft", "fft.rfft"),
        ("nn.functional.geluu", "aten::gelu"),
        ("nn.MultiHeadAttn", "nn.MultiheadAttention"),
    ],
)
def test_near_names_are_offered(text: str, near: str, lists: OpLists) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(text, lists)
    assert "did you mean " in caught.value.hint
    assert near in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("bf16", "the dtype bfloat16", "--dtype bfloat16"),
        ("2.13", "a version", "--torch 2.13"),
        ("OC102", "the code of a finding", "opcheck explain OC102"),
        ("net.py:Net", "names a model", "opcheck audit net.py:Net"),
        ("nn.Sequential", "contains other modules", "opcheck audit"),
        ("torch.compile", "compiles a model", "opcheck compile"),
        ("autocast", "is no operator", "--autocast"),
        ("x.cuda()", "a Mac has no CUDA", '.to("mps")'),
        ("torch.cuda.synchronize()", "requires CUDA", "opcheck scan"),
        ("np.linalg.svd", "a function of NumPy", "opcheck op torch.linalg.svd"),
        ("torch.distributed.all_reduce", "several processes", "opcheck run"),
        ("F.interpolate bicubik", "no mode 'bicubik'", "bicubic"),
        ("torch.lstsq", "has removed it", "torch.linalg.lstsq"),
        ("torch.nested.nested_tensor", "no kernels for nested", "torch.jagged"),
        ("torchvision.transforms.functional.resize", "no operator of that name", "opcheck run"),
    ],
)
def test_what_is_no_operator_is_named(text: str, message: str, hint: str, lists: OpLists) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        resolve(text, lists)
    assert hint in caught.value.hint


def test_each_word_stands_for_something(lists: OpLists) -> None:
    for word, meant in WORDS.items():
        assert resolve(word, lists).overloads, word
        assert resolve(meant, lists).overloads, meant
    assert not [name for name in WITHOUT_OPERATORS if name in composites.python_callers()]


def test_each_class_of_torch_nn_has_calls_or_a_reason_for_none() -> None:
    nn = pytest.importorskip("torch.nn")
    classes = [
        f"nn.{name}" for name, value in vars(nn).items() if isinstance(value, type) and issubclass(value, nn.Module)
    ]
    assert len(classes) > 150
    missing = {*classes} - composites.python_callers() - WITHOUT_OPERATORS.keys()
    assert missing == set()


def test_a_wrong_overload_is_answered_with_those_that_exist(lists: OpLists) -> None:
    with pytest.raises(UsageError) as caught:
        resolve("aten::median.dims", lists)
    assert "(none), dim, dim_values" in caught.value.hint


def test_the_arguments_of_a_copied_call_are_left_out(lists: OpLists) -> None:
    query = resolve("torch.where(x > 0, x, y)", lists)
    assert (query.asked, query.main.partition(".")[0]) == ("torch.where", "aten::where")
