"""Images and videos for a transformers model, as pixels or as the patches that its processor cuts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from opcheck.capture.build import values
from opcheck.capture.derive_config import Facts

#: Height and width in patches of an image that a processor cuts into patches.
GRID = 16

#: Their images are a batch of several: (batch, images, channels, height, width).
_SEVERAL = (
    "aria",
    "idefics",
    "idefics2",
    "idefics3",
    "smolvlm",
    "llava_next",
    "llava_onevision",
    "granite4_vision",
    "deepseek_vl_hybrid",
)
#: What the first layer of a vision part may be.
_READERS = (nn.Conv2d, nn.Conv3d, nn.Linear)

#: Height and width of the images of a kind whose configuration does not say.
_SIZES: dict[str, tuple[int, int]] = {
    # Of 48 rows its default backbone leaves two, and its head pools three.
    "pp_ocrv5_mobile_rec": (96, 320),
    "pp_ocrv5_server_rec": (48, 320),
    "pp_ocrv6_small_rec": (48, 320),
    "pp_ocrv6_tiny_rec": (48, 320),
    "tvp": (448, 448),
    "pe_video": (336, 336),
    "pe_video_encoder": (336, 336),
    "pe_audio_video": (336, 336),
    "pe_audio_video_encoder": (336, 336),
}

#: Their images are frames, and a part of the configuration says how many.
_VIDEOS = ("tvp", "xclip")

#: Parts of models whose ``hidden_states`` are an image.
_READ_IMAGES = (
    "Florence2VisionBackbone",
    "PPOCRV5MobileDetModel",
    "PPOCRV5ServerDetModel",
    "PPOCRV6MediumDetModel",
    "PPOCRV6SmallDetModel",
    "SLANeXtBackbone",
    "SLANetBackbone",
)

#: Two images are compared.
_PAIRS = ("superglue", "lightglue", "efficientloftr")


def image_shape(facts: Facts) -> tuple[int, int, int]:
    """Channels, height and width."""
    part = facts.part("vision_config") or facts.part("backbone_config") or facts
    first = next((one for one in seen(facts).modules() if isinstance(one, nn.Conv2d)), None)
    channels = part.size("num_channels", "in_channels", "in_chans", "image_channels", default=3)
    if first is not None and first.groups == 1 and first.in_channels in (1, 3, 4):
        channels = first.in_channels
    size = facts.get("image_size", "input_size", "img_size", default=_SIZES.get(facts.kind, 224))
    if isinstance(size, dict):
        size = (size["height"], size["width"])
    height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    return channels, height, width


def seen(facts: Facts) -> nn.Module:
    """The part of the model that sees; the whole where no name says which it is."""
    named = (
        module
        for name, module in facts.model.named_modules()
        if name.rpartition(".")[2].startswith("vis")
    )
    found: nn.Module = next(named, facts.model)
    return found


def _image(facts: Facts) -> torch.Tensor:
    if not facts.parameters.keys().isdisjoint(("grid_thw", "image_grid_thw", "image_grid_hw")):
        return _patches(facts)
    channels, height, width = image_shape(facts)
    if facts.kind in _PAIRS or facts.name == "ViltForImagesAndTextClassification":
        return facts.floats(1, 2, channels, height, width)
    if facts.name == "XCLIPVisionModel":
        return facts.floats(facts.config.num_frames, channels, height, width)
    frames = facts.get("num_frames") if facts.kind in _VIDEOS else None
    frames = 4 if facts.kind == "instructblipvideo" else frames
    frames = frames or getattr(facts.config, "num_frames", None)
    if "molmo2" in facts.kind:
        return _cut(facts).unsqueeze(0)
    if frames or facts.kind in _SEVERAL:
        return facts.floats(1, frames or 1, channels, height, width)
    return facts.floats(1, channels, height, width)


def _video(facts: Facts) -> torch.Tensor:
    frames = facts.size("frames_per_clip", "num_frames", default=16)
    channels, height, width = image_shape(facts)
    height = width = facts.size("crop_size", default=height)
    return facts.floats(1, frames, channels, height, width)


def _patches(facts: Facts) -> torch.Tensor:
    """Rows of patches, as the processors of Qwen2-VL and its kin make them."""
    part = facts.part("vision_config") or facts
    channels = part.size("in_channels", "in_chans", "num_channels", default=3)
    side = part.size("patch_size", default=14)
    if "paddleocr" in facts.kind:
        return facts.floats(1, GRID * GRID, channels, side, side)
    layers = (one for one in seen(facts).modules() if isinstance(one, _READERS))
    first = next(layers, None)
    if isinstance(first, nn.Conv2d):
        return facts.floats(GRID * GRID, channels, side, side)
    pixels = channels * part.size("temporal_patch_size") * side * side
    if isinstance(first, nn.Linear) and first.in_features % (channels * side * side) == 0:
        pixels = first.in_features
    return facts.floats(GRID * GRID, pixels)


def _hidden(facts: Facts) -> torch.Tensor:
    """What a vision part reads: patches or an image; another part of a model, a row of vectors."""
    if facts.name in _READ_IMAGES:
        return facts.floats(1, *image_shape(facts))
    if "grid_thw" in facts.parameters:
        return _patches(facts)
    layers = (one for one in facts.model.modules() if isinstance(one, _READERS))
    first = next(layers, None)
    if isinstance(first, nn.Conv2d) and first.groups == 1:
        return facts.floats(1, first.in_channels, GRID, GRID)  # a map of features
    return facts.floats(1, 64, facts.size("input_dim", "hidden_size", default=768))


def grid(_facts: Facts) -> torch.Tensor:
    """Frames, height and width in patches."""
    return torch.tensor([[1, GRID, GRID]])


def _image_sizes(facts: Facts) -> torch.Tensor:
    return torch.tensor([image_shape(facts)[1:]])


def _flat(facts: Facts) -> torch.Tensor:
    """Pix2Struct: each patch with its row and its column."""
    part = facts.part("vision_config") or facts
    count = 64
    pixels = part.size("patch_embed_hidden_size", default=768)
    rows = torch.arange(1, count + 1).reshape(1, count, 1).to(facts.dtype)
    return torch.cat((rows, rows, facts.floats(1, count, pixels)), dim=-1)


def _naflex(facts: Facts) -> torch.Tensor:
    """Siglip 2: patches, padded to their largest number."""
    part = facts.part("vision_config") or facts
    pixels = part.size("num_channels", default=3) * part.size("patch_size", default=16) ** 2
    return facts.floats(1, GRID * GRID, pixels)


def _side(facts: Facts) -> int:
    """Gemma 4 pools three by three patches."""
    return 24 if "gemma4" in facts.kind else GRID


def _positions(facts: Facts) -> torch.Tensor:
    """Column and row of each patch."""
    side = _side(facts)
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    return torch.stack((columns, rows), dim=-1).reshape(1, side * side, 2)


def _cut(facts: Facts) -> torch.Tensor:
    part = facts.part("vision_config") or facts
    pixels = 3 * part.size("patch_size", default=16) ** 2
    # Molmo 2 reads 378 pixels in patches of 14.
    count = 27 * 27 if "molmo2" in facts.kind else _side(facts) ** 2
    return facts.floats(1, count, pixels)


def _half(facts: Facts) -> torch.Tensor:
    """SegGPT puts the prompt above the image."""
    channels, height, width = image_shape(facts)
    return facts.floats(1, channels, height // 2, width)


def _tiles(facts: Facts) -> torch.Tensor:
    """Mllama: (batch, images, tiles, channels, height, width)."""
    return facts.floats(1, 1, facts.size("max_num_tiles", default=4), *image_shape(facts))


def _masked(facts: Facts) -> torch.Tensor:
    _, height, width = image_shape(facts)
    side = facts.size("patch_size", default=16)
    frames = facts.size("num_frames", default=16) // facts.size("tubelet_size", default=2)
    positions = values((1, frames * (height // side) * (width // side)), torch.int64, 2)
    return positions.bool()


#: An argument of forward -> what makes it.
MAKERS: dict[str, Callable[[Facts], Any]] = {
    "pixel_values": _image,
    "pixel_values_videos": _video,
    "hidden_states": _hidden,
    "grid_thw": grid,
    "image_grid_thw": grid,
    "image_grid_hw": lambda facts: grid(facts)[:, 1:],
    "merge_sizes": lambda _: torch.ones(1, dtype=torch.int64),
    "image_sizes": _image_sizes,
    "flattened_patches": _flat,
    "pixel_position_ids": _positions,
    "image_position_ids": _positions,
    "spatial_shapes": lambda _: torch.tensor([[GRID, GRID]]),
    "bool_masked_pos": _masked,
    "aspect_ratio_ids": lambda _: torch.ones((1, 1), dtype=torch.int64),
    "aspect_ratio_mask": lambda facts: torch.ones(
        (1, 1, facts.size("max_num_tiles", default=4)), dtype=torch.int64
    ),
}

#: The same for a kind of model that does otherwise.
SPECIAL: dict[tuple[str, str], Callable[[Facts], Any]] = {
    ("siglip2", "pixel_values"): _naflex,
    ("siglip2_vision_model", "pixel_values"): _naflex,
    ("siglip2", "pixel_attention_mask"): lambda _: torch.ones((1, GRID * GRID), dtype=torch.int64),
    ("siglip2_vision_model", "pixel_attention_mask"): lambda _: torch.ones(
        (1, GRID * GRID), dtype=torch.int64
    ),
    ("gemma4", "pixel_values"): _cut,
    ("gemma4_vision", "pixel_values"): _cut,
    ("siglip2", "spatial_shapes"): lambda _: torch.tensor([[GRID, GRID]]),
    # Its windows divide a multiple of 56, which the size of its own configuration is not.
    ("rf_detr", "pixel_values"): lambda facts: facts.floats(1, 3, 448, 448),
    ("janus_vqgan", "pixel_values"): lambda facts: facts.floats(1, 3, 512, 512),
    ("idefics", "image_attention_mask"): lambda _: torch.ones((1, 128, 1), dtype=torch.int64),
    ("tvp", "pixel_values"): _image,
    ("seggpt", "pixel_values"): _half,
    ("seggpt", "prompt_pixel_values"): _half,
    ("seggpt", "prompt_masks"): _half,
    ("mllama_vision_model", "pixel_values"): _tiles,
}
