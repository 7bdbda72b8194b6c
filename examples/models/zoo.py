"""The models of the sample reports and the benchmarks.

Each factory takes nothing and returns a module and the inputs of one call, so that it can be named
on the command line: ``opcheck audit examples/models/zoo.py:llama3_8b``.  The library models are built from
their published configurations; no weights are downloaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

Made = tuple[nn.Module, dict[str, Tensor]]

#: Of a text: as long as a sentence or two.
TOKENS = 128


def _ids(vocabulary: int, tokens: int = TOKENS) -> Tensor:
    return torch.arange(tokens).remainder(vocabulary).unsqueeze(0)


def bert_base() -> Made:
    """BERT-base (google-bert/bert-base-uncased), 128 tokens."""
    from transformers import BertConfig, BertModel

    config = BertConfig()
    return BertModel(config), {"input_ids": _ids(config.vocab_size)}


def gpt2() -> Made:
    """GPT-2 small with its language-model head (openai-community/gpt2), 128 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config()
    return GPT2LMHeadModel(config), {"input_ids": _ids(config.vocab_size)}


def llama3_8b() -> Made:
    """Llama 3 8B (meta-llama/Meta-Llama-3-8B) in bfloat16, 128 tokens."""
    return _llama3(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32)


def llama3_70b() -> Made:
    """Llama 3 70B (meta-llama/Meta-Llama-3-70B) in bfloat16, 128 tokens."""
    return _llama3(hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64)


def _llama3(**sizes: int) -> Made:
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        num_key_value_heads=8,
        vocab_size=128256,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        dtype=torch.bfloat16,
        **sizes,
    )
    return AutoModelForCausalLM.from_config(config), {"input_ids": _ids(config.vocab_size)}


def whisper_small() -> Made:
    """Whisper small (openai/whisper-small): 30 seconds of sound, 32 tokens of transcript."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        d_model=768,
        encoder_layers=12,
        decoder_layers=12,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
    )
    inputs = {
        "input_features": torch.zeros(1, config.num_mel_bins, 2 * config.max_source_positions),
        "decoder_input_ids": _ids(config.vocab_size, 32),
    }
    return WhisperForConditionalGeneration(config), inputs


def vit_b16() -> Made:
    """ViT-B/16 with its classifier (google/vit-base-patch16-224), one image."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(num_labels=1000)
    return ViTForImageClassification(config), {"pixel_values": torch.zeros(1, 3, 224, 224)}


def wav2vec2_base() -> Made:
    """wav2vec 2.0 base (facebook/wav2vec2-base), one second of sound."""
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    return Wav2Vec2Model(Wav2Vec2Config()), {"input_values": torch.zeros(1, 16000)}


def fnet_base() -> Made:
    """FNet base (google/fnet-base), 128 tokens: Fourier transforms for attention."""
    from transformers import FNetConfig, FNetModel

    config = FNetConfig()
    return FNetModel(config), {"input_ids": _ids(config.vocab_size)}


def resnet50() -> Made:
    """ResNet-50 of timm, one image."""
    import timm

    return timm.create_model("resnet50"), {"x": torch.zeros(1, 3, 224, 224)}


def sd15_unet() -> Made:
    """The U-net of Stable Diffusion 1.5 (stable-diffusion-v1-5), one step on one 512x512 image."""
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=64,
        in_channels=4,
        out_channels=4,
        down_block_types=(*["CrossAttnDownBlock2D"] * 3, "DownBlock2D"),
        up_block_types=("UpBlock2D", *["CrossAttnUpBlock2D"] * 3),
        block_out_channels=(320, 640, 1280, 1280),
        layers_per_block=2,
        cross_attention_dim=768,
        attention_head_dim=8,
    )
    inputs = {
        "sample": torch.zeros(1, 4, 64, 64),
        "timestep": torch.tensor([1]),
        "encoder_hidden_states": torch.zeros(1, 77, 768),
    }
    return model, inputs


class Tagger(nn.Module):
    """A bidirectional LSTM that tags each token of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20000, 300)
        self.lstm = nn.LSTM(300, 512, num_layers=2, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(1024, 17)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores (batch, length, 17) for tokens (batch, length)."""
        states, _ = self.lstm(self.embed(tokens))
        return self.tags(states)


def lstm_tagger() -> Made:
    """A bidirectional LSTM tagger, 64 tokens."""
    return Tagger(), {"tokens": _ids(20000, 64)}


class Spectral(nn.Module):
    """Filters a signal in the frequency domain with complex weights, as an FNO layer does."""

    def __init__(self, channels: int = 32, modes: int = 24) -> None:
        super().__init__()
        self.modes = modes
        self.lift = nn.Conv1d(1, channels, 1)
        self.weight = nn.Parameter(torch.rand(channels, channels, modes, dtype=torch.cfloat))
        self.project = nn.Conv1d(channels, 1, 1)

    def forward(self, signal: Tensor) -> Tensor:
        """The filtered signal (batch, 1, length)."""
        lifted = self.lift(signal)
        spectrum = torch.fft.rfft(lifted)
        low = torch.einsum("bim,iom->bom", spectrum[..., : self.modes], self.weight)
        padded = nn.functional.pad(low, (0, spectrum.shape[-1] - self.modes))
        phase = torch.polar(padded.abs(), padded.angle())
        return self.project(torch.fft.irfft(phase, n=signal.shape[-1]).relu())


def spectral() -> Made:
    """A small network on complex numbers and Fourier transforms."""
    return Spectral(), {"signal": torch.linspace(-1, 1, 256).reshape(1, 1, 256)}


class LinearAlgebra(nn.Module):
    """Asks for decompositions and a special function that Macs treat in different ways."""

    def __init__(self, size: int = 16) -> None:
        super().__init__()
        self.mix = nn.Linear(size, size)

    def forward(self, matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Eigenvalues, singular values and a low-rank copy of a matrix (size, size)."""
        mixed = self.mix(matrix)
        eigenvalues = torch.linalg.eig(mixed).eigenvalues
        singular = torch.special.airy_ai(torch.linalg.svdvals(mixed))
        left, values, right = torch.linalg.svd(mixed, full_matrices=False)
        return eigenvalues, singular, (left * values) @ right


def linear_algebra() -> Made:
    """A small network on matrix decompositions."""
    return LinearAlgebra(), {"matrix": torch.eye(16) + 0.1}


@torch.library.custom_op("zoo::soft_clip", mutates_args=(), device_types="cpu")
def soft_clip(values: Tensor, limit: float) -> Tensor:
    """An operator of a library that no list describes."""
    return limit * torch.tanh(values / limit)


@soft_clip.register_fake
def _(values: Tensor, limit: float) -> Tensor:  # noqa: ARG001 - the operator's signature
    return torch.empty_like(values)


class Clipped(nn.Module):
    """A layer between two calls of the custom operator."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        """Values (batch, 64) between -1 and 1."""
        return soft_clip(self.layer(soft_clip(x, 4.0)), 1.0)


def custom_operator() -> Made:
    """A small network that calls an operator that a library registers for the CPU alone."""
    return Clipped(), {"x": torch.zeros(8, 64)}


def mixtral_8x7b() -> Made:
    """Mixtral 8x7B (mistralai/Mixtral-8x7B-v0.1) in bfloat16, 32 tokens: a mixture of experts."""
    from transformers import AutoModelForCausalLM, MixtralConfig

    config = MixtralConfig(dtype=torch.bfloat16)
    return AutoModelForCausalLM.from_config(config), {"input_ids": _ids(config.vocab_size, 32)}


def mamba_130m() -> Made:
    """Mamba 130M (state-spaces/mamba-130m-hf), 16 tokens: its scan in plain PyTorch."""
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=50280, num_hidden_layers=24)
    return MambaForCausalLM(config), {"input_ids": _ids(config.vocab_size, 16)}


def sam_vit_b() -> Made:
    """Segment Anything with ViT-B (facebook/sam-vit-base), one image and one point."""
    from transformers import SamConfig, SamModel

    inputs = {"pixel_values": torch.zeros(1, 3, 1024, 1024), "input_points": torch.tensor([[[[512.0, 384.0]]]])}
    return SamModel(SamConfig()), inputs


def detr_r50() -> Made:
    """DETR with ResNet-50 (facebook/detr-resnet-50), one image."""
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(out_features=["stage4"])
    config = DetrConfig(use_timm_backbone=False, backbone_config=backbone, backbone=None)
    return DetrForObjectDetection(config), {"pixel_values": torch.zeros(1, 3, 800, 1066)}


def wav2vec2_ctc() -> Made:
    """wav2vec 2.0 base that writes what it hears (facebook/wav2vec2-base-960h), one second."""
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    return Wav2Vec2ForCTC(Wav2Vec2Config()), {"input_values": torch.zeros(1, 16000)}


def _block3d(channels: int, out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(channels, out, 3, padding=1, bias=False),
        nn.InstanceNorm3d(out, affine=True),
        nn.LeakyReLU(inplace=True),
    )


class UNet3D(nn.Module):
    """A 3-D U-net: three levels down and up again, as volumes of a scanner are segmented."""

    def __init__(self, width: int = 32, classes: int = 4) -> None:
        super().__init__()
        widths = [width, width * 2, width * 4]
        self.down = nn.ModuleList(map(_block3d, [1, *widths], widths))
        self.bottom = _block3d(widths[-1], widths[-1])
        up = [*reversed(widths)]
        self.rise = nn.ModuleList(nn.ConvTranspose3d(w, w, 2, stride=2) for w in up)
        self.up = nn.ModuleList(_block3d(2 * w, n) for w, n in zip(up, [*up[1:], width], strict=True))
        self.classify = nn.Conv3d(width, classes, 1)

    def forward(self, volume: Tensor) -> Tensor:
        """Scores (batch, classes, depth, height, width) for a volume (batch, 1, depth, ...)."""
        kept = []
        for block in self.down:
            volume = block(volume)
            kept.append(volume)
            volume = nn.functional.max_pool3d(volume, 2)
        volume = self.bottom(volume)
        for rise, block in zip(self.rise, self.up, strict=True):
            volume = block(torch.cat([rise(volume), kept.pop()], 1))
        return self.classify(volume)


def unet3d() -> Made:
    """A 3-D U-net, one volume of 64 voxels a side."""
    return UNet3D(), {"volume": torch.zeros(1, 1, 64, 64, 64)}


class GraphNetwork(nn.Module):
    """Two rounds of messages along edges: gathered, weighted by attention, added to their nodes."""

    def __init__(self, features: int = 64, rounds: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, features)
        self.message = nn.ModuleList(nn.Linear(2 * features, features) for _ in range(rounds))
        self.score = nn.ModuleList(nn.Linear(features, 1) for _ in range(rounds))
        self.update = nn.ModuleList(nn.GRUCell(features, features) for _ in range(rounds))
        self.read = nn.Linear(features, 1)

    def forward(self, kinds: Tensor, edges: Tensor, graph: Tensor) -> Tensor:
        """One number a graph, for nodes of some kind, edges (2, n) and the graph of each node."""
        state = self.embed(kinds)
        source, target = edges
        for message, score, update in zip(self.message, self.score, self.update, strict=True):
            sent = message(torch.cat([state[source], state[target]], -1)).relu()
            weight = self._softmax(score(sent).squeeze(-1), target, len(state))
            gathered = torch.zeros_like(state).index_add(0, target, sent * weight.unsqueeze(-1))
            state = update(gathered, state)
        count = int(graph.max()) + 1
        index = graph.unsqueeze(-1).expand_as(state)
        pooled = state.new_zeros(count, state.shape[-1])
        return self.read(pooled.scatter_reduce(0, index, state, "mean", include_self=False))

    @staticmethod
    def _softmax(scores: Tensor, target: Tensor, nodes: int) -> Tensor:
        """The scores of the edges into one node sum to one."""
        least = scores.new_full((nodes,), float("-inf"))
        largest = least.scatter_reduce(0, target, scores.detach(), "amax")
        weight = (scores - largest[target]).exp()
        return weight / scores.new_zeros(nodes).scatter_add(0, target, weight)[target]


def graph_network() -> Made:
    """A network on graphs: two rings of 12 nodes."""
    nodes = torch.arange(24)
    ring = torch.stack([nodes, (nodes + 1) % 12 + 12 * (nodes // 12)])
    edges = torch.cat([ring, ring.flip(0)], 1)
    return GraphNetwork(), {"kinds": nodes % 16, "edges": edges, "graph": nodes // 12}


#: Every factory, in the order of the reports.
ZOO: dict[str, Callable[[], Any]] = {
    make.__name__: make
    for make in (
        bert_base,
        gpt2,
        llama3_8b,
        mixtral_8x7b,
        mamba_130m,
        whisper_small,
        vit_b16,
        wav2vec2_base,
        wav2vec2_ctc,
        fnet_base,
        resnet50,
        detr_r50,
        sam_vit_b,
        sd15_unet,
        unet3d,
        lstm_tagger,
        graph_network,
        spectral,
        linear_algebra,
        custom_operator,
    )
}
