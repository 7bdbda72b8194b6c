"""Hold the words by which people call operators, and the names that are no operators.

One table for the command line, the site's search and the search of the coverage page.
"""

from __future__ import annotations

#: A usual word -> the Python name or the operator that it stands for.  Words are compared without case, spaces,
#: hyphens and underscores (``key``), so that ``layernorm`` and ``grid sample`` need no entry.
WORDS = {
    "adaptive pooling": "nn.functional.adaptive_avg_pool2d",
    "attention": "nn.functional.scaled_dot_product_attention",
    "average pool": "nn.functional.avg_pool2d",
    "avgpool": "nn.functional.avg_pool2d",
    "batch matmul": "bmm",
    "bce": "nn.functional.binary_cross_entropy",
    "bce with logits": "nn.functional.binary_cross_entropy_with_logits",
    "bicubic": "aten::upsample_bicubic2d",
    "bilinear interpolation": "aten::upsample_bilinear2d",
    "boolean indexing": "Tensor.__getitem__",
    "causal attention": "nn.functional.scaled_dot_product_attention",
    "ce loss": "nn.functional.cross_entropy",
    "choice": "multinomial",
    "clip grad norm": "nn.utils.clip_grad_norm_",
    "concat": "cat",
    "concatenate": "cat",
    "conv": "nn.functional.conv2d",
    "convolution": "nn.functional.conv2d",
    "ctc": "nn.functional.ctc_loss",
    "deconv": "nn.functional.conv_transpose2d",
    "deconvolution": "nn.functional.conv_transpose2d",
    "deform conv": "torchvision::deform_conv2d",
    "deformable convolution": "torchvision::deform_conv2d",
    "dense": "nn.functional.linear",
    "eig decomposition": "linalg.eig",
    "eigenvalues": "linalg.eigvals",
    "fancy indexing": "Tensor.__getitem__",
    "feed forward": "nn.functional.linear",
    "flash attention": "nn.functional.scaled_dot_product_attention",
    "fully connected": "nn.functional.linear",
    "fused rms norm": "nn.functional.rms_norm",
    "gemm": "mm",
    "gumbel": "nn.functional.gumbel_softmax",
    "indexing": "Tensor.__getitem__",
    "inv": "linalg.inv",
    "kl divergence": "nn.functional.kl_div",
    "least squares": "linalg.lstsq",
    "masked indexing": "Tensor.__getitem__",
    "matrix multiplication": "matmul",
    "max pooling": "nn.functional.max_pool2d",
    "maxpool": "nn.functional.max_pool2d",
    "mha": "nn.MultiheadAttention",
    "mse": "nn.functional.mse_loss",
    "multi head attention": "nn.MultiheadAttention",
    "nearest interpolation": "aten::upsample_nearest2d",
    "non maximum suppression": "torchvision::nms",
    "one hot encoding": "nn.functional.one_hot",
    "padding": "nn.functional.pad",
    "percentile": "quantile",
    "pinverse": "linalg.pinv",
    "power": "pow",
    "pseudo inverse": "linalg.pinv",
    "qr": "linalg.qr",
    "resize": "nn.functional.interpolate",
    "rotary": "rope",
    "rotary embedding": "rope",
    "rotary position embedding": "rope",
    "roi align": "torchvision::roi_align",
    "roi pool": "torchvision::roi_pool",
    "sampling": "multinomial",
    "sdp": "nn.functional.scaled_dot_product_attention",
    "sdpa": "nn.functional.scaled_dot_product_attention",
    "self attention": "nn.MultiheadAttention",
    "slice assignment": "Tensor.__setitem__",
    "slicing": "Tensor.__getitem__",
    "solve": "linalg.solve",
    "swish": "nn.functional.silu",
    "to cpu": "Tensor.cpu",
    "transposed convolution": "nn.functional.conv_transpose2d",
    "upsampling": "nn.functional.interpolate",
}

_HOLDS = "it holds other modules and calls no operator of its own"
_MODEL = "opcheck audit FILE.py:NAME audits a module with all that it holds"
_CUDA = "a Mac has no CUDA"
_MOVE = 'write .to("mps"); opcheck scan FILE.py finds such lines'
_COPY = "it needs a tensor of the CPU: on an MPS tensor it raises"
_CPU = "write .cpu() before it; opcheck op Tensor.cpu"
_BASE = "it is a base class"

#: Names of torch that call no operator -> why, and what to do next.
WITHOUT_OPERATORS: dict[str, tuple[str, str]] = {
    "nn.Container": (_HOLDS, _MODEL),
    "nn.DataParallel": (f"it is for several GPUs of CUDA, and {_CUDA}", _MODEL),
    "nn.Module": ("it is the base of all modules", _MODEL),
    "nn.ModuleDict": (_HOLDS, _MODEL),
    "nn.ModuleList": (_HOLDS, _MODEL),
    "nn.Parameter": ("it is a tensor, not an operator", _MODEL),
    "nn.ParameterDict": ("it holds parameters and calls no operator", _MODEL),
    "nn.ParameterList": ("it holds parameters and calls no operator", _MODEL),
    "nn.RNNBase": (_BASE, "opcheck op nn.LSTM, nn.GRU or nn.RNN"),
    "nn.RNNCellBase": (_BASE, "opcheck op nn.LSTMCell, nn.GRUCell or nn.RNNCell"),
    "nn.Sequential": (_HOLDS, _MODEL),
    "Tensor.__array__": (_COPY, _CPU),
    "Tensor.__cuda_array_interface__": (_CUDA, _MOVE),
    "Tensor.apply_": (_COPY, _CPU),
    "Tensor.cuda": (_CUDA, _MOVE),
    "Tensor.map2_": (_COPY, _CPU),
    "Tensor.map_": (_COPY, _CPU),
    "Tensor.numpy": (_COPY, _CPU),
    "Tensor.share_memory_": (_COPY, _CPU),
}

#: Operators that releases have removed -> the first release without it, and what to write instead.  The functions
#: of linear algebra raise since then (torch/_linalg_utils.py); the methods of named tensors are gone.
REMOVED: dict[str, tuple[str, str]] = {
    "aten::align_as": ("2.13", ""),
    "aten::align_tensors": ("2.13", ""),
    "aten::align_to": ("2.13", ""),
    "aten::cholesky": ("2.14", "torch.linalg.cholesky"),
    "aten::qr": ("2.14", "torch.linalg.qr"),
    "aten::refine_names": ("2.13", ""),
    "aten::rename": ("2.13", ""),
    "aten::rename_": ("2.13", ""),
    "aten::symeig": ("2.0", "torch.linalg.eigh"),
}


def key(text: str) -> str:
    """Return a text as names are compared: without case, spaces, hyphens and underscores."""
    return "".join(letter for letter in text.lower() if letter not in " -_")
