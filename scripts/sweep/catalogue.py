"""Which models the libraries have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from scripts.sweep.records import Job

#: The smallest members of a timm family, by what their names say; the first that one has.
_SMALL = ("atto", "femto", "pico", "nano", "tiny", "micro", "xxs", "_xs", "xx_small", "mini", "_s")

#: The models of diffusers: those of the pipelines that its documentation leads with.
DIFFUSERS = """
    AllegroTransformer3DModel AsymmetricAutoencoderKL AuraFlowTransformer2DModel AutoencoderDC AutoencoderKL
    AutoencoderKLAllegro AutoencoderKLCogVideoX AutoencoderKLCosmos AutoencoderKLFlux2 AutoencoderKLHunyuanVideo
    AutoencoderKLLTXVideo AutoencoderKLMagvit AutoencoderKLMochi AutoencoderKLQwenImage
    AutoencoderKLTemporalDecoder AutoencoderKLWan AutoencoderOobleck AutoencoderTiny BriaTransformer2DModel
    ChromaTransformer2DModel CogVideoXTransformer3DModel CogView3PlusTransformer2DModel
    CogView4Transformer2DModel ConsisIDTransformer3DModel ConsistencyDecoderVAE ControlNetModel
    ControlNetUnionModel CosmosTransformer3DModel DiTTransformer2DModel Flux2Transformer2DModel
    FluxControlNetModel FluxTransformer2DModel HiDreamImageTransformer2DModel HunyuanDiT2DControlNetModel
    HunyuanDiT2DModel HunyuanVideoTransformer3DModel I2VGenXLUNet Kandinsky3UNet Kandinsky5Transformer3DModel
    LatteTransformer3DModel LTXVideoTransformer3DModel Lumina2Transformer2DModel LuminaNextDiT2DModel
    MochiTransformer3DModel OmniGenTransformer2DModel OvisImageTransformer2DModel PixArtTransformer2DModel
    PriorTransformer QwenImageControlNetModel QwenImageTransformer2DModel SanaControlNetModel
    SanaTransformer2DModel SanaVideoTransformer3DModel SD3ControlNetModel SD3Transformer2DModel
    SkyReelsV2Transformer3DModel SparseControlNetModel StableAudioDiTModel StableCascadeUNet T2IAdapter
    Transformer2DModel TransformerTemporalModel UNet1DModel UNet2DConditionModel UNet2DModel
    UNet3DConditionModel UNetControlNetXSModel UNetMotionModel UNetSpatioTemporalConditionModel UVit2DModel
    VQModel WanAnimateTransformer3DModel WanTransformer3DModel WanVACETransformer3DModel ZImageTransformer2DModel
""".split()  # noqa: SIM905 - a list literal takes a page


def transformers_jobs(library: ModuleType) -> Iterator[Job]:
    """Every public model class that has a configuration of its own and a forward."""
    names = [
        name
        for name, module in library._class_to_module.items()  # noqa: SLF001 - it lists them unimported
        if ".modeling_" in f".{module}" and not name.endswith("PreTrainedModel")
    ]
    for name in sorted(names):
        kind: Any = getattr(library, name, None)
        if _is_model(kind, library.PreTrainedModel) and kind.config_class is not None:
            yield Job(spec=f"transformers:{name}", family=kind.config_class.__name__)


def timm_jobs(library: ModuleType) -> Iterator[Job]:
    """The smallest model of each module of timm, as far as names tell."""
    for module in sorted(library.list_modules()):
        names = library.list_models(module=module)
        if names:
            yield Job(spec=f"timm:{min(names, key=_smallness)}", family=module)


def torchvision_jobs(library: ModuleType) -> Iterator[Job]:
    """One classifier a family, and every model of the other tasks."""
    seen: set[str] = set()
    for name in library.models.list_models():
        home = library.models.get_model_builder(name).__module__.removeprefix("torchvision.models.")
        if home not in seen or home.startswith(("detection", "segmentation", "video", "optical")):
            yield Job(spec=f"torchvision:{name}", family=home)
        seen.add(home)


def diffusers_jobs(library: ModuleType) -> Iterator[Job]:
    """The main models: U-nets, transformers, autoencoders, ControlNets."""
    for name in DIFFUSERS:
        if hasattr(library, name):
            yield Job(spec=f"diffusers:{name}", family=name)


def _smallness(name: str) -> tuple[int, int, str]:
    words = (position for position, word in enumerate(_SMALL) if word in name)
    return next(words, len(_SMALL)), len(name), name


def _is_model(kind: Any, base: Any) -> bool:
    model: Any = kind
    return (
        isinstance(kind, type)
        and issubclass(kind, base)
        and model.forward.__name__ != "_forward_unimplemented"  # of nn.Module
    )


CATALOGUES: dict[str, Callable[[ModuleType], Iterator[Job]]] = {
    "transformers": transformers_jobs,
    "timm": timm_jobs,
    "torchvision": torchvision_jobs,
    "diffusers": diffusers_jobs,
}
