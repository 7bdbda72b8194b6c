"""What models and pipelines of diffusers are made of and called with, where no words and no weights are there."""

import inspect
import itertools
import re
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from opcheck.capture.child.build import values
from opcheck.capture.child.recipes.recipe_engine import RecipeScope
from opcheck.capture.word_lists import TABLES
from opcheck.common.errors import InputError

#: Denoising steps: the second one takes the way of all that follow.
STEPS = 2
#: A prompt; what it states changes no call.
PROMPT = "a photo of a cat on a table"
#: Frames of a video: the smallest number above one that the video models' compression in time divides.
FRAMES = 17
#: Frames of the latents of a video, as diffusers.yaml has it.
LATENT_FRAMES = 5
#: Seconds of sound.
SECONDS = 2.0
#: Height and width of a picture that a pipeline starts from, where it states none.
SIDE = 512
#: Tokens of a prompt where the tokenizer names no limit.
_TOKENS = 77
#: A tokenizer without a limit of its own states a number beyond any length.
_NO_LIMIT = 1 << 20

#: Pipelines that start from a picture, by their class names.
_FROM_IMAGE = re.compile("|".join(TABLES["from_image"]))


class PipelineModel(nn.Module):
    """A pipeline as one module: its components are submodules, its forward is the whole call."""

    def __init__(self, pipeline: Any, components: Mapping[str, Any], failures: Mapping[str, Exception]) -> None:
        """Take the pipeline and its components.

        Args:
            pipeline: The pipeline; None: it cannot be built.
            components: Its components by name.
            failures: What building a component, or the pipeline by the name of its class, raised.
        """
        super().__init__()
        self.pipeline = pipeline
        self.failures = dict(failures)
        #: shape of the latents that a call had come to when it broke off; empty: it had none, or came to its end
        self.latents: tuple[int, ...] = ()
        if pipeline is not None:
            pipeline.set_progress_bar_config(disable=True)
            _give_text_cleaner(pipeline)
        for name, component in components.items():
            if isinstance(component, nn.Module):
                self.add_module(name, component)

    def forward(self, **arguments: Any) -> Any:
        """Call the pipeline as its users do.

        Raises:
            Exception: what building it raised.
        """
        for error in self.failures.values():
            raise error
        try:
            return self.pipeline(**arguments)
        except Exception as error:
            self.latents = _latents_at(error, self.pipeline)
            raise

    def stage(self, module: str) -> str:
        """Return the component where a call broke off; empty: in none.

        Args:
            module: The path of the module that raised.
        """
        component = module.partition(".")[0]
        return component if component in dict(self.named_children()) else ""


def _latents_at(error: Exception, pipeline: Any) -> tuple[int, ...]:
    """Return the shape of what a pipeline's methods called ``latents`` when the error ended them; empty: nothing."""
    shape: tuple[int, ...] = ()
    for frame, _ in traceback.walk_tb(error.__traceback__):
        variables = frame.f_locals
        if variables.get("self") is pipeline and isinstance(variables.get("latents"), Tensor):
            shape = tuple(variables["latents"].shape)
    return shape


def _give_text_cleaner(pipeline: Any) -> None:
    """Put a substitute where a pipeline's module uses ftfy, and it is missing: it changes no call."""
    module: Any = sys.modules.get(type(pipeline).__module__)
    if hasattr(module, "basic_clean") and not hasattr(module, "ftfy"):
        module.ftfy = SimpleNamespace(fix_text=str)


def arguments(pipeline: Any) -> dict[str, Any]:
    """Return what the pipeline is called with: a prompt, pictures where its class needs them, two steps."""
    name = type(pipeline).__name__
    parameters = inspect.signature(pipeline.__call__).parameters
    offered: dict[str, Any] = {
        "prompt": PROMPT,
        "num_inference_steps": _steps(parameters),
        "num_frames": FRAMES,
        "audio_length_in_s": SECONDS,
        "audio_end_in_s": SECONDS,
    }
    if _FROM_IMAGE.search(name):
        side = side_of(pipeline)
        offered |= {"image": _picture(side), "mask_image": _picture(side, "L"), "control_image": _picture(side)}
    result = {key: value for key, value in offered.items() if key in parameters}
    if "class_labels" in parameters and "prompt" not in parameters:
        result["class_labels"] = [1]
    # A pipeline that guides its prompt by another one, and has no default for it.
    negative = parameters.get("negative_prompt")
    if negative is not None and negative.default is inspect.Parameter.empty:
        result["negative_prompt"] = ""
    return result


def _steps(parameters: Mapping[str, inspect.Parameter]) -> int:
    """Return how many steps leave STEPS: with a strength the first ones are left out."""
    strength = parameters["strength"].default if "strength" in parameters else 1.0
    if not (isinstance(strength, float) and 0 < strength < 1):
        return STEPS
    return next(steps for steps in itertools.count(STEPS) if int(steps * strength) >= STEPS)


def side_of(pipeline: Any) -> int:
    """Return the height and width of the pictures that the pipeline makes where the caller gives none."""
    denoiser = getattr(pipeline, "unet", None) or getattr(pipeline, "transformer", None)
    config = getattr(denoiser, "config", None)
    stated = (getattr(pipeline, "default_sample_size", None), getattr(config, "sample_size", None))
    scale = getattr(pipeline, "vae_scale_factor", None)
    size = next((each for each in stated if isinstance(each, int)), None)
    if not (size and isinstance(scale, int)):
        return SIDE
    # What enlarges a picture takes an input of its latents' size.
    return size if "Upscale" in type(pipeline).__name__ else size * scale


def _picture(side: int, mode: str = "RGB") -> Any:
    from PIL import Image

    return Image.new(mode, (side, side), 128 if mode == "L" else (128, 96, 64))


def has_latents(component: Any) -> bool:
    """Return whether a component's configuration states which latents it decodes: of pictures or of videos."""
    scope = DiffusersScope(component) if hasattr(component, "config_name") else None
    return scope is not None and "sample" in scope.parameters and _channels(component) > 0


def _channels(decoder: Any) -> int:
    stated = (decoder.config.get(key) for key in _LATENT_CHANNELS)
    return next((each for each in stated if isinstance(each, int)), 0)


def latents(decoder: Any) -> Any:
    """Return latents for a VAE, of the size that its own inputs are encoded to.

    Raises:
        InputError: nothing is known of its inputs.
    """
    sample = derive(decoder)["sample"]
    settings: Mapping[str, Any] = decoder.config
    widths = next((settings[key] for key in _WIDTHS if settings.get(key)), ())
    scale = settings.get("scale_factor_spatial") or 1 << max(len(widths) - 1, 0)
    frames = [LATENT_FRAMES] if sample.dim() == len("BCFHW") else []
    sizes = [*frames, *(max(size // scale, 1) for size in sample.shape[2 + len(frames) :])]
    return values((1, _channels(decoder), *sizes), next(decoder.parameters()).dtype)


#: Settings of VAEs: the channels of latents, and the widths between which each level halves height and width.
_LATENT_CHANNELS = ("latent_channels", "z_dim")
_WIDTHS = ("block_out_channels", "encoder_block_out_channels", "dim_mult")


def tokenizer(settings: dict[str, Any]) -> Any:
    """Return a tokenizer with a few words: it makes as many tokens as the real one, which has a vocabulary.

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
    """Return a processor of pictures; one of pictures and text with a tokenizer with a few words."""
    of_both = hasattr(kind, "get_attributes") and "tokenizer" in kind.get_attributes()
    if not of_both:
        return kind.from_pretrained(folder)
    images = library.AutoImageProcessor.from_pretrained(folder)
    return kind(image_processor=images, tokenizer=tokenizer({}))


# -- models of diffusers: the names of forward, filled from the configuration by diffusers.yaml ----------------------


class DiffusersScope(RecipeScope):
    """A model of diffusers, its configuration, and what its recipes may call."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__("diffusers", model)
        # Not the first weight's: some classes keep modules in float32.
        self.dtype = getattr(model, "dtype", self.dtype)

    def get(self, *names: str, default: Any = None) -> Any:
        """Return the first of these settings that is set; of a list its first entry."""
        for name in names:
            value = self.config.get(name)
            if isinstance(value, (list, tuple)):
                value = value[0] if value else None
            if value is not None:
                return value
        return default

    def side(self, default: int) -> tuple[int, int]:
        """Return the height and the width of a sample."""
        size = self.config.get("sample_size")
        if isinstance(size, (list, tuple)):
            return size[-2], size[-1]
        if isinstance(size, int):
            return size, size
        height, width = self.get("sample_height"), self.get("sample_width")
        return (height, width) if height and width else (default, default)


def derive(model: nn.Module) -> dict[str, Any]:
    """Make keyword arguments for one forward pass with batch size 1.

    Returns:
        ``sample`` 1xCxHxW or ``hidden_states`` in the model's layout, ``timestep`` 1,
        ``encoder_hidden_states`` 1x77xD, and what else the configuration makes forward ask for.

    Raises:
        InputError: forward requires an argument that nothing is known about.
    """
    scope = DiffusersScope(model)
    offered = {*scope["_offered"], *scope.own_arguments}
    result: dict[str, Any] = {}
    for name, required in scope.parameters.items():
        value = scope[name] if (required or name in offered) and name in scope else None
        if value is not None:
            result[name] = value
        elif required:
            raise InputError(
                f"opcheck cannot derive the input {name!r} of {scope.class_name}",
                context=f"{scope.class_name}.forward",
                hint="give every argument: --input sample=1x4x64x64:float32 --input ...",
            )
    return result
