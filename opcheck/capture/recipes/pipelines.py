"""What the pipelines of diffusers are made of and called with, where no words and no weights are there."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from torch import nn

#: Denoising steps: the second one takes the way of all that follow.
STEPS = 2
#: A prompt; what it says changes no call.
PROMPT = "a photo of a cat on a table"
#: Frames of a video: the smallest number above one that the video models' compression in time divides.
FRAMES = 17
#: Seconds of sound.
SECONDS = 2.0
#: Height and width of a picture that a pipeline starts from.
SIDE = 512
#: Tokens of a prompt where the tokenizer names no limit.
_TOKENS = 77
#: A tokenizer without a limit of its own says a number beyond any length.
_NO_LIMIT = 1 << 20

#: Pipelines that start from a picture, by their class names.
_FROM_IMAGE = re.compile(
    r"Img2Img|Image2|ImageTo|I2V|Inpaint|ControlNet|Upscale|Pix2Pix|Edit|Kontext|Fill|Depth2Img|StableVideo|"
    r"Variation|Redux|ImageVariation|Condition"
)


class PipelineModel(nn.Module):
    """A pipeline as one module: its components are submodules, its forward is the whole call."""

    def __init__(self, pipeline: Any) -> None:
        super().__init__()
        pipeline.set_progress_bar_config(disable=True)
        self.pipeline = pipeline
        for name, component in pipeline.components.items():
            if isinstance(component, nn.Module):
                self.add_module(name, component)

    def forward(self, **arguments: Any) -> Any:
        """Call the pipeline as its users do."""
        return self.pipeline(**arguments)


def arguments(pipeline: Any) -> dict[str, Any]:
    """Return what the pipeline is called with: a prompt, pictures where its class needs them, two steps."""
    name = type(pipeline).__name__
    parameters = inspect.signature(pipeline.__call__).parameters
    offered: dict[str, Any] = {
        "prompt": PROMPT,
        "num_inference_steps": STEPS,
        "num_frames": FRAMES,
        "audio_length_in_s": SECONDS,
        "audio_end_in_s": SECONDS,
    }
    if _FROM_IMAGE.search(name):
        offered |= {"image": _picture(), "mask_image": _picture("L"), "control_image": _picture()}
    made = {key: value for key, value in offered.items() if key in parameters}
    if "class_labels" in parameters and "prompt" not in parameters:
        made["class_labels"] = [1]
    # A pipeline that guides its prompt by another one, and has no default for it.
    negative = parameters.get("negative_prompt")
    if negative is not None and negative.default is inspect.Parameter.empty:
        made["negative_prompt"] = ""
    return made


def _picture(mode: str = "RGB") -> Any:
    from PIL import Image

    return Image.new(mode, (SIDE, SIDE), 128 if mode == "L" else (128, 96, 64))


def tokenizer(settings: dict[str, Any]) -> Any:
    """Return a tokenizer that knows a few words: it makes as many tokens as the real one, which has a vocabulary.

    Args:
        settings: the tokenizer_config.json.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*_SPECIAL.values(), *dict.fromkeys(PROMPT.split())]
    vocabulary = {word: number for number, word in enumerate(words)}
    inner = Tokenizer(models.WordLevel(vocabulary, _SPECIAL["unk_token"]))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    limit = settings.get("model_max_length") or _TOKENS
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        model_max_length=limit if limit < _NO_LIMIT else 512,
        padding_side=settings.get("padding_side", "right"),
        chat_template=settings.get("chat_template") or _TEMPLATE,
        **_SPECIAL,
    )


_SPECIAL = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
_TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def processor(kind: Any, library: Any, folder: Path) -> Any:
    """Return a processor of pictures; one of pictures and text with a tokenizer that knows a few words."""
    of_both = hasattr(kind, "get_attributes") and "tokenizer" in kind.get_attributes()
    if not of_both:
        return kind.from_pretrained(folder)
    images = library.AutoImageProcessor.from_pretrained(folder)
    return kind(image_processor=images, tokenizer=tokenizer({}))
