"""Inputs are read as written, and derived ones fit the model that they are for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from opcheck.capture.child.inputs.derive import derive, highest_index, twice
from opcheck.capture.child.inputs.specs import InputSpec, describe, inputs_for, parse_input
from opcheck.capture.child.loading.load import Arguments, Loaded, load
from opcheck.capture.child.recipes.recipe_engine import recipes
from opcheck.common.errors import InputError, UsageError
from opcheck.common.names import DTYPES


def loaded(model: Callable[..., Any], inputs: Arguments | None = None) -> Loaded:
    return Loaded(model=model, inputs=inputs, family="user", packages={})


@pytest.mark.parametrize(
    ("text", "name", "shape", "dtype"),
    [
        ("1x3x224x224:float32", "", (1, 3, 224, 224), "float32"),
        ("1x3x224x224", "", (1, 3, 224, 224), "float32"),
        ("input_ids=1x128:int64", "input_ids", (1, 128), "int64"),
        ("128:long", "", (128,), "int64"),
        ("0x4:torch.half", "", (0, 4), "float16"),
        (":float64", "", (), "float64"),
        ("scalar:int64", "", (), "int64"),
        ("scalar", "", (), "float32"),
        ("t=:int32", "t", (), "int32"),
        ("t=scalar", "t", (), "float32"),
    ],
)
def test_an_input_is_read(text: str, name: str, shape: tuple[int, ...], dtype: str) -> None:
    assert parse_input(text) == InputSpec(name=name, shape=shape, dtype=dtype)


@given(
    name=st.sampled_from(["", "x", "input_ids"]),
    shape=st.lists(st.integers(0, 5000)).map(tuple),
    dtype=st.sampled_from(sorted(DTYPES)),
)
def test_what_is_printed_is_read_back(name: str, shape: tuple[int, ...], dtype: str) -> None:
    spec = InputSpec(name=name, shape=shape, dtype=dtype)
    assert parse_input(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "why", "position"),
    [
        ("1x3xQ:float32", "expected a size, found 'Q'", 5),
        ("1x-3", "expected a size, found '-3'", 3),
        ("1xx3", "expected a size, found ''", 3),
        ("1x3x", "expected a size, found ''", 5),
        ("ids=1x12y:int64", "expected a size, found '12y'", 7),
        ("1x3:float7", "unknown dtype: 'float7'", 5),
        ("ids=4:int65", "unknown dtype: 'int65'", 7),
        ("a b=1x3", "'a b' is not the name of an argument", 1),
        ("=1x3", "'' is not the name of an argument", 1),
        ("", "expected a shape", 1),
        ("x=", "expected a shape", 3),
    ],
)
def test_an_input_that_does_not_parse(text: str, why: str, position: int) -> None:
    with pytest.raises(InputError) as caught:
        parse_input(text)
    assert str(caught.value).splitlines() == [
        f"cannot read the input {text!r}: {why}",
        f"  in: character {position}",
        "  help: write 1x3x224x224:float32, name=1x128:int64, or scalar:float32",
    ]


def test_a_size_has_no_more_digits_than_a_64_bit_number() -> None:
    with pytest.raises(InputError, match="expected a size") as caught:
        parse_input("9" * 5000)
    assert len(str(caught.value)) < 500


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 4)

    def forward(self, ids: Tensor, scale: Tensor, *, mask: Tensor | None = None) -> Tensor:
        embedded: Tensor = self.embed(ids) * scale
        return embedded if mask is None else embedded * mask


def test_written_inputs_are_called_in_their_order_and_by_name() -> None:
    made = inputs_for(loaded(Two()), ("1x200:int64", "scale=:float32", "mask=1x200x1:bool"))
    assert made.specs == ("1x200:int64", "scale=scalar:float32", "mask=1x200x1:bool")
    assert made.note == ""
    ids = made.args[0]
    assert ids.max() < 11
    assert len(ids.unique()) > 5
    assert Two()(*made.args, **made.kwargs).shape == (1, 200, 4)


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        (
            ("1x4:int64", "scal=:float32"),
            ["the model takes no argument 'scal'", "  in: scal=scalar:float32", "  help: it takes ids, scale, mask"],
        ),
        (
            ("mask=4", "mask=5"),
            ["the input 'mask' is given twice", "  in: mask=5:float32", "  help: give each argument once"],
        ),
    ],
)
def test_written_inputs_that_the_model_does_not_take(written: tuple[str, ...], lines: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        inputs_for(loaded(Two()), written)
    assert str(caught.value).splitlines() == lines


def test_an_operator_takes_written_inputs() -> None:
    made = inputs_for(loaded(torch.linalg.eig), ("4x4",))
    assert torch.linalg.eig(*made.args).eigenvalues.shape == (4,)


def test_inputs_that_came_with_the_model() -> None:
    model = loaded(nn.Linear(4, 4), ((torch.ones(2, 4),), {"flags": [torch.zeros(3), True]}))
    made = inputs_for(model)
    assert made.specs == ("2x4:float32", "flags[0]=3:float32")
    assert made.note == "the inputs that came with the model"
    assert made.args[0] is model.inputs[0][0]  # type: ignore[index]


def test_written_inputs_win_over_those_that_came() -> None:
    made = inputs_for(loaded(nn.Linear(4, 4), ((torch.ones(2, 4),), {})), ("7x4",))
    assert made.specs == ("7x4:float32",)


def test_floating_inputs_are_cast_and_others_are_not() -> None:
    model = loaded(Two(), ((torch.zeros(1, 3, dtype=torch.int64), torch.ones(())), {}))
    assert inputs_for(model, dtype="half").specs == ("1x3:int64", "scalar:float16")
    with pytest.raises(UsageError, match="unknown dtype"):
        inputs_for(model, dtype="float7")


def test_a_container_is_described_with_the_path_to_each_tensor() -> None:
    nest = {"times": {"ids": torch.ones(1, 6)}, "images": [torch.ones(3)], "flag": True}
    assert list(describe([[torch.ones(2)]], nest)) == [
        "[0]=2:float32",
        "times['ids']=1x6:float32",
        "images[0]=3:float32",
    ]


class Stack(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.ReLU(), *layers])

    def forward(self, x: Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize(
    ("layer", "spec"),
    [
        (nn.Linear(5, 2), "1x5:float32"),
        (nn.Linear(5, 2, dtype=torch.float64), "1x5:float64"),
        (nn.Conv1d(3, 4, 3), "1x3x1024:float32"),
        (nn.Conv2d(1, 4, 3), "1x1x224x224:float32"),
        (nn.Conv3d(1, 2, 3, stride=8), "1x1x16x112x112:float32"),
        (nn.ConvTranspose2d(4, 2, 3), "1x4x16x16:float32"),
        (nn.LSTM(7, 8), "32x1x7:float32"),
        (nn.GRU(7, 8, batch_first=True), "1x32x7:float32"),
        (nn.TransformerEncoderLayer(8, 2, batch_first=True), "1x32x8:float32"),
        (nn.LayerNorm((4, 6)), "1x32x4x6:float32"),
        (nn.BatchNorm1d(9), "2x9:float32"),
        (nn.BatchNorm2d(3), "1x3x64x64:float32"),
        (nn.GroupNorm(2, 4), "1x4x64x64:float32"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_first_layer_says_what_it_reads(layer: nn.Module, spec: str) -> None:
    made = inputs_for(loaded(Stack(layer)))
    assert made.specs == (spec,)
    assert "guessed from the first layer, layers.1" in made.note
    Stack(layer)(*made.args)


def test_the_first_layer_is_an_embedding() -> None:
    model = nn.Sequential(nn.Embedding(13, 4), nn.Linear(4, 2))
    made = inputs_for(loaded(model))
    assert made.specs == ("1x128:int64",)
    assert made.note == ("the input was guessed from the first layer, 0 (Embedding): --input sets it")
    assert model(*made.args).shape == (1, 128, 2)


def no_arguments() -> None:
    return None


@pytest.mark.parametrize(
    ("model", "what", "takes"),
    [
        (Two(), "Two", "ids, scale"),
        (nn.ReLU(), "ReLU", "input"),
        (nn.Transformer(8, 2, 1, 1, 8, batch_first=True), "Transformer", "src, tgt"),
        (no_arguments, "no_arguments", "no required argument that can be read"),
        (torch.linalg.eig, "linalg_eig", "no required argument that can be read"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_model_that_nothing_is_known_about(model: Callable[..., Any], what: str, takes: str) -> None:
    with pytest.raises(InputError) as caught:
        inputs_for(loaded(model))
    assert str(caught.value).splitlines() == [
        f"opcheck cannot derive the inputs of {what}",
        f"  in: {what} takes {takes}",
        "  help: give each argument: --input 1x3x224x224:float32 --input name=1x128:int64",
    ]


def test_indices_stay_inside_their_table() -> None:
    model = Two()
    assert highest_index(model) == 11
    assert highest_index(model, "token_type_ids") == 2
    assert highest_index(nn.Linear(2, 2)) == 1
    assert highest_index(no_arguments) == 1


TEXT = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 100}
SIZED = {**TEXT, "intermediate_size": 32}
PICTURE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
SPEECH = {**PICTURE, "conv_dim": [16] * 7, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}
SEQ2SEQ = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
}


@pytest.mark.parametrize(
    ("name", "config", "specs"),
    [
        ("BertModel", {**SIZED, "max_position_embeddings": 40}, ("input_ids=1x38:int64",)),
        ("RobertaModel", {**SIZED, "max_position_embeddings": 40}, ("input_ids=1x38:int64",)),
        ("GPT2Model", {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 100}, ("input_ids=1x128:int64",)),
        (
            "XLNetModel",
            {"d_model": 32, "n_layer": 1, "n_head": 2, "d_inner": 32, "vocab_size": 100},
            ("input_ids=1x128:int64",),
        ),
        ("LlamaForCausalLM", SIZED, ("input_ids=1x128:int64",)),
        (
            "T5Model",
            {"d_model": 32, "d_ff": 32, "d_kv": 8, "num_layers": 1, "num_heads": 2},
            ("input_ids=1x128:int64", "decoder_input_ids=1x128:int64"),
        ),
        ("BartModel", {**SEQ2SEQ, "vocab_size": 100}, ("input_ids=1x128:int64", "decoder_input_ids=1x128:int64")),
        (
            "WhisperModel",
            {**SEQ2SEQ, "num_mel_bins": 8, "max_source_positions": 50},
            ("input_features=1x8x100:float32", "decoder_input_ids=1x128:int64"),
        ),
        ("ViTModel", {**PICTURE, "image_size": 32, "num_channels": 1}, ("pixel_values=1x1x32x32:float32",)),
        ("ConvNextModel", {"hidden_sizes": [8] * 4, "depths": [1] * 4}, None),
        ("VideoMAEModel", {**PICTURE, "image_size": 32, "num_frames": 4}, ("pixel_values=1x4x3x32x32:float32",)),
        ("Wav2Vec2Model", SPEECH, ("input_values=1x16000:float32",)),
        (
            "DacModel",
            {
                "encoder_hidden_size": 8,
                "downsampling_ratios": [2],
                "decoder_hidden_size": 8,
                "upsampling_ratios": [2],
                "n_codebooks": 1,
                "codebook_dim": 4,
                "hidden_size": 16,
            },
            ("input_values=1x1x24000:float32",),
        ),
        ("ASTModel", {**PICTURE, "max_length": 64, "num_mel_bins": 32}, ("input_values=1x64x32:float32",)),
        (
            "CLIPModel",
            {
                "text_config": {**SIZED, "eos_token_id": 99, "max_position_embeddings": 20},
                "vision_config": {**PICTURE, "image_size": 32},
            },
            ("input_ids=1x18:int64", "pixel_values=1x3x32x32:float32"),
        ),
        (
            "PatchTSTModel",
            {"d_model": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
            ("past_values=1x32x1:float32",),
        ),
    ],
)
def test_a_transformers_model_runs_with_its_derived_inputs(
    name: str, config: dict[str, Any], specs: tuple[str, ...] | None
) -> None:
    pytest.importorskip("transformers")
    made = load(f"transformers:{name}", config)
    inputs = inputs_for(made)
    assert inputs.specs == (specs or ("pixel_values=1x3x224x224:float32",))
    assert inputs.note == "inputs as the configuration describes them"
    run(made.model, inputs.args, inputs.kwargs)


LLAVA = {"text_config": {"model_type": "llama", **SIZED}, "vision_config": PICTURE}


def test_a_model_of_text_and_images_is_called_with_an_image_and_as_many_tokens_for_it() -> None:
    pytest.importorskip("transformers")
    made = load("transformers:LlavaForConditionalGeneration", LLAVA | {"image_token_id": 7})
    inputs = inputs_for(made)
    ids, pixels = inputs.kwargs["input_ids"], inputs.kwargs["pixel_values"]
    patches = (224 // 32) ** 2  # CLIPVisionConfig
    assert int((ids == 7).sum()) == patches
    assert ids.shape == (1, 128 + patches)
    assert pixels.shape == (1, 3, 224, 224)
    assert "without" not in inputs.note
    made.model(**inputs.kwargs)


def test_a_model_of_text_and_images_that_cannot_be_run_on_shapes_is_called_with_text_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("transformers")
    made = load("transformers:LlavaForConditionalGeneration", LLAVA)

    def refuses(*_args: Any, **_kwargs: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(made.model, "get_image_features", refuses)
    inputs = inputs_for(made)
    assert inputs.specs == ("input_ids=1x128:int64",)
    assert inputs.note.endswith("; without pixel_values, which --input gives")


def test_settings_that_the_configuration_leaves_open_are_set_and_said() -> None:
    pytest.importorskip("transformers")
    made = load("transformers:EsmModel", SIZED)
    inputs = inputs_for(made)
    assert "which EsmConfig leaves open" in inputs.note
    made.model(**inputs.kwargs)


def test_a_setting_that_is_given_is_not_said_to_be_open() -> None:
    pytest.importorskip("transformers")
    given = {**SIZED, "vocab_size": 40, "pad_token_id": 1, "mask_token_id": 32}
    made = load("transformers:EsmModel", given)
    assert made.model.config.vocab_size == 40  # type: ignore[attr-defined]  # a library's class
    assert "leaves open" not in inputs_for(made).note


def test_floating_inputs_have_the_dtype_of_the_weights() -> None:
    pytest.importorskip("transformers")
    made = load("transformers:ViTModel", {**PICTURE, "image_size": 32}, dtype="float16")
    assert inputs_for(made).specs == ("pixel_values=1x3x32x32:float16",)


def test_a_transformers_input_that_nothing_is_known_about(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    known = recipes("transformers")
    monkeypatch.delitem(known.names, "inputs")
    monkeypatch.delitem(known.exact["PerceiverModel"], "inputs")
    monkeypatch.delitem(known.exact["perceiver"], "inputs")
    made = load("transformers:PerceiverModel", {"num_latents": 4, "d_latents": 16, "d_model": 16})
    with pytest.raises(InputError) as caught:
        inputs_for(made)
    what, where, then = str(caught.value).splitlines()
    assert what == "opcheck cannot derive the input 'inputs' of PerceiverModel"
    assert where.startswith("  in: transformers:PerceiverModel takes inputs, attention_mask")
    assert then == "  help: give it: --input inputs=1x128:float32"


@pytest.mark.parametrize(
    ("name", "config", "spec"),
    [
        ("resnet18", {}, "1x3x224x224:float32"),
        ("resnet18", {"in_chans": 1}, "1x1x224x224:float32"),
        ("test_vit", {}, "1x3x160x160:float32"),
        ("test_vit", {"img_size": 64}, "1x3x64x64:float32"),
    ],
)
def test_a_timm_model(name: str, config: dict[str, Any], spec: str) -> None:
    pytest.importorskip("timm")
    made = load(f"timm:{name}", config)
    inputs = inputs_for(made)
    assert inputs.specs == (spec,)
    run(made.model, inputs.args, inputs.kwargs)


@pytest.mark.parametrize(
    ("name", "specs"),
    [
        ("mobilenet_v3_small", ("1x3x224x224:float32",)),
        ("r3d_18", ("1x3x16x112x112:float32",)),
        ("lraspp_mobilenet_v3_large", ("1x3x520x520:float32",)),
        ("raft_small", ("1x3x360x520:float32", "1x3x360x520:float32")),
        ("fasterrcnn_mobilenet_v3_large_320_fpn", ("[0]=3x480x640:float32",)),
        ("ssdlite320_mobilenet_v3_large", ("[0]=3x300x300:float32",)),
    ],
)
def test_a_torchvision_model(name: str, specs: tuple[str, ...]) -> None:
    pytest.importorskip("torchvision")
    made = load(f"torchvision:{name}")
    inputs = inputs_for(made)
    assert inputs.specs == specs
    if not isinstance(inputs.args[0], list):  # its boxes depend on the values
        run(made.model, inputs.args, inputs.kwargs, device="meta")


class Wrapper(nn.Module):
    """Holds a model of a library; each subclass passes its arguments on in another way."""

    def __init__(self, wrapped: Any) -> None:
        super().__init__()
        self.wrapped = wrapped


class PassesAll(Wrapper):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.wrapped(*args, **kwargs)


class PassesTwo(Wrapper):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        return self.wrapped(input_ids, attention_mask=attention_mask)


class PassesOne(Wrapper):
    def forward(self, x: Tensor) -> Any:
        return self.wrapped(x)


class HasAStem(Wrapper):
    def __init__(self, wrapped: Any) -> None:
        super().__init__(wrapped)
        self.wrapped = nn.Sequential(nn.Conv2d(1, 3, 1), wrapped)

    def forward(self, x: Tensor) -> Any:
        return self.wrapped(x)


_SMALL_BERT = {"num_hidden_layers": 1, "hidden_size": 12, "intermediate_size": 8}


@pytest.mark.parametrize(
    ("wrapper", "name", "config", "specs"),
    [
        (PassesAll, "transformers:BertModel", _SMALL_BERT, ("input_ids=1x128:int64",)),
        (PassesTwo, "transformers:BertModel", _SMALL_BERT, ("input_ids=1x128:int64", "attention_mask=1x128:int64")),
        (PassesOne, "transformers:BertModel", _SMALL_BERT, ("1x128:int64",)),
        (PassesOne, "timm:test_vit", {}, ("1x3x160x160:float32",)),
        (HasAStem, "timm:resnet18", {}, ("1x1x224x224:float32",)),
    ],
)
def test_a_wrapper_is_called_as_the_model_that_it_wraps(
    wrapper: type[Wrapper], name: str, config: dict[str, Any], specs: tuple[str, ...]
) -> None:
    pytest.importorskip(name.partition(":")[0])
    model = wrapper(load(name, config).model)
    inputs = inputs_for(loaded(model))
    assert inputs.specs == specs
    run(model, inputs.args, inputs.kwargs)


def test_batch_norm_is_trained_with_more_than_one_sample() -> None:
    normed = loaded(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    assert inputs_for(normed, train=True).specs == ("2x3:float32",)
    assert inputs_for(normed).specs == ("1x3:float32",)
    assert inputs_for(normed, ["1x3:float32"], train=True).specs == ("1x3:float32",)
    plain = loaded(nn.Linear(3, 2))
    assert inputs_for(plain, train=True).specs == ("1x3:float32",)


def test_what_is_no_batch_is_not_doubled() -> None:
    time, sequence, images = torch.ones(1), torch.ones(5, 1, 3), [torch.ones(3, 4, 4)]
    assert twice((images,), {})[0][0] == images * 2
    for other in (time, sequence):
        args, _ = twice((images, other), {})
        assert [len(arg) for arg in args] == [1, len(other)]


UNET: dict[str, Any] = {
    "block_out_channels": [32, 32],
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    "layers_per_block": 1,
    "cross_attention_dim": 32,
    "attention_head_dim": 8,
    "sample_size": 16,
}
SAMPLE = ("sample=1x4x16x16:float32", "timestep=1:int64", "encoder_hidden_states=1x77x32:float32")
FLUX = {
    "num_layers": 1,
    "num_single_layers": 1,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 24,
    "pooled_projection_dim": 12,
    "axes_dims_rope": [4, 4, 8],
}


@pytest.mark.parametrize(
    ("name", "config", "specs"),
    [
        ("UNet2DConditionModel", UNET, SAMPLE),
        (
            "UNet2DConditionModel",
            {
                **UNET,
                "addition_embed_type": "text_time",
                "addition_time_embed_dim": 8,
                "projection_class_embeddings_input_dim": 80,
            },
            (*SAMPLE, "added_cond_kwargs['text_embeds']=1x32:float32", "added_cond_kwargs['time_ids']=1x6:float32"),
        ),
        ("UNet2DConditionModel", {**UNET, "num_class_embeds": 5}, (*SAMPLE, "class_labels=1:int64")),
        (
            "ControlNetModel",
            {name: value for name, value in UNET.items() if name not in ("sample_size", "up_block_types")},
            (
                "sample=1x4x64x64:float32",
                "timestep=1:int64",
                "encoder_hidden_states=1x77x32:float32",
                "controlnet_cond=1x3x512x512:float32",
            ),
        ),
        ("AutoencoderKL", {"block_out_channels": [32]}, ("sample=1x3x64x64:float32",)),
        (
            "FluxTransformer2DModel",
            {**FLUX, "guidance_embeds": True},
            (
                "hidden_states=1x1024x64:float32",
                "encoder_hidden_states=1x77x24:float32",
                "pooled_projections=1x12:float32",
                "timestep=1:float32",
                "img_ids=1024x3:float32",
                "txt_ids=77x3:float32",
                "guidance=1:float32",
            ),
        ),
        (
            "SD3Transformer2DModel",
            {
                "sample_size": 16,
                "num_layers": 1,
                "attention_head_dim": 16,
                "num_attention_heads": 2,
                "joint_attention_dim": 24,
                "caption_projection_dim": 32,
                "pooled_projection_dim": 12,
                "pos_embed_max_size": 16,
            },
            (
                "hidden_states=1x16x16x16:float32",
                "encoder_hidden_states=1x77x24:float32",
                "pooled_projections=1x12:float32",
                "timestep=1:float32",
            ),
        ),
        (
            "WanTransformer3DModel",
            {"num_layers": 1, "attention_head_dim": 12, "num_attention_heads": 2, "ffn_dim": 32, "text_dim": 24},
            ("hidden_states=1x16x5x32x32:float32", "timestep=1:float32", "encoder_hidden_states=1x77x24:float32"),
        ),
        (
            "CogVideoXTransformer3DModel",
            {
                "num_layers": 1,
                "attention_head_dim": 16,
                "num_attention_heads": 2,
                "text_embed_dim": 24,
                "sample_width": 8,
                "sample_height": 8,
                "max_text_seq_length": 20,
            },
            ("hidden_states=1x5x16x8x8:float32", "encoder_hidden_states=1x20x24:float32", "timestep=1:float32"),
        ),
    ],
)
def test_a_diffusers_model_runs_with_its_derived_inputs(
    name: str, config: dict[str, Any], specs: tuple[str, ...]
) -> None:
    pytest.importorskip("diffusers")
    made = load(f"diffusers:{name}", config)
    inputs = inputs_for(made)
    assert sorted(inputs.specs) == sorted(specs)
    run(made.model, inputs.args, inputs.kwargs)


def test_a_diffusers_input_that_nothing_is_known_about(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("diffusers")
    monkeypatch.delitem(recipes("diffusers").exact, "T2IAdapter")
    made = load("diffusers:T2IAdapter", {"channels": [8, 8, 8, 8], "num_res_blocks": 1})
    with pytest.raises(InputError) as caught:
        derive(made.model, made.family)
    assert str(caught.value).splitlines() == [
        "opcheck cannot derive the input 'x' of T2IAdapter",
        "  in: T2IAdapter.forward",
        "  help: give every argument: --input sample=1x4x64x64:float32 --input ...",
    ]


def run(model: Any, args: Any, kwargs: Any, device: str = "cpu") -> None:
    """Call the model, for real, with zeros for the weights that were built on meta."""
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            if weight.is_meta and device == "cpu":
                setattr(module, name, nn.Parameter(torch.zeros_like(weight, device="cpu")))
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_meta and device == "cpu":
                setattr(module, name, torch.zeros_like(buffer, device="cpu"))
    if device == "meta":
        model.to("meta")
        args = [value.to("meta") for value in args]
    with torch.no_grad():
        model.eval()(*args, **kwargs)
