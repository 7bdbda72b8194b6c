"""Small calls of torch's modules, Python functions and methods, for scripts/python_calls.py.

An example is an expression whose outermost call is recorded; everything inside of it is prepared before.  Of a
module, the outermost call is that of its forward.  ``x`` makes a tensor of random numbers on the simulated Mac,
``ints`` one of whole numbers below its first argument, ``bools`` one of truth values.
"""

from __future__ import annotations

#: What stands for itself in the examples of several classes.
_RNN = "(x(5, 2, 4))"
_CELL = "(x(2, 4))"
_LOSS = "(x(4, 5), x(4, 5))"
_CLASSES = "(x(4, 5), ints(5, 4))"
_MAPS = {1: "x(2, 4, 16)", 2: "x(2, 4, 16, 16)", 3: "x(2, 4, 8, 8, 8)"}
#: The modes of interpolation, the default first, with a tensor that each takes.
_MODES = (
    ("nearest", _MAPS[2]), ("bilinear", _MAPS[2]), ("bicubic", _MAPS[2]), ("nearest", _MAPS[1]),
    ("linear", _MAPS[1]), ("nearest", _MAPS[3]), ("trilinear", _MAPS[3]), ("nearest-exact", _MAPS[2]),
)  # fmt: skip
_LAYER = "(8, 2, 16)"
_SOURCE = "x(5, 2, 8)"


def _spatial(
    name: str, arguments: str, dimensions: tuple[int, ...] = (1, 2, 3)
) -> dict[str, tuple[str, ...]]:
    """Return the examples of a class for 1, 2 and 3 dimensions; ``{n}`` stands for the number."""
    return {
        name.format(n=n): (f"nn.{name.format(n=n)}({arguments.format(n=n)})({_MAPS[n]})",)
        for n in dimensions
    }


#: Activations and other classes that take any tensor, with the arguments of their constructors.
_POINTWISE = {
    "AlphaDropout": "0.5", "CELU": "", "ConstantPad1d": "1, 0.5", "Dropout": "0.5", "ELU": "",
    "FeatureAlphaDropout": "0.5", "Flatten": "", "GLU": "", "Hardshrink": "", "Hardsigmoid": "",
    "Hardswish": "", "Hardtanh": "", "Identity": "", "LeakyReLU": "", "LogSigmoid": "", "LogSoftmax": "1",
    "Mish": "", "PReLU": "", "RReLU": "", "ReLU": "", "ReLU6": "", "SELU": "", "SiLU": "", "Sigmoid": "",
    "Softmax": "1", "Softmin": "1", "Softplus": "", "Softshrink": "", "Softsign": "", "Tanh": "",
    "Tanhshrink": "", "Threshold": "0.1, 20.0",
}  # fmt: skip
_LOSSES = (
    "BCELoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "PoissonNLLLoss", "SmoothL1Loss",
)  # fmt: skip

MODULES: dict[str, tuple[str, ...]] = {
    **{name: (f"nn.{name}({made})(x(2, 4, 6))",) for name, made in _POINTWISE.items()},
    **{name: (f"nn.{name}(){_LOSS}",) for name in _LOSSES},
    **_spatial("AdaptiveAvgPool{n}d", "4"),
    **_spatial("AdaptiveMaxPool{n}d", "4"),
    **_spatial("AvgPool{n}d", "2"),
    **_spatial("BatchNorm{n}d", "4"),
    **_spatial("CircularPad{n}d", "1"),
    **_spatial("ConstantPad{n}d", "1, 0.5"),
    **_spatial("Conv{n}d", "4, 6, 3, padding=1"),
    **_spatial("ConvTranspose{n}d", "4, 6, 3"),
    **_spatial("Dropout{n}d", "0.5"),
    **_spatial("FractionalMaxPool{n}d", "2, output_size=4", (2, 3)),
    **_spatial("InstanceNorm{n}d", "4, affine=True"),
    **_spatial("LPPool{n}d", "2, 2"),
    **_spatial("LazyBatchNorm{n}d", ""),
    **_spatial("LazyConv{n}d", "6, 3"),
    **_spatial("LazyConvTranspose{n}d", "6, 3"),
    **_spatial("LazyInstanceNorm{n}d", "affine=True"),
    **_spatial("MaxPool{n}d", "2"),
    **_spatial("ReflectionPad{n}d", "1"),
    **_spatial("ReplicationPad{n}d", "1"),
    **_spatial("ZeroPad{n}d", "1"),
    "AdaptiveLogSoftmaxWithLoss": ("nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10])(x(6, 8), ints(20, 6))",),
    "BCEWithLogitsLoss": (f"nn.BCEWithLogitsLoss(){_LOSS}",),
    "Bilinear": ("nn.Bilinear(4, 5, 6)(x(2, 4), x(2, 5))",),
    "CTCLoss": (
        "nn.CTCLoss()(x(10, 2, 5).log_softmax(2), ints(4, 2, 3) + 1, torch.tensor([10, 10]), torch.tensor([3, 3]))",
    ),
    "ChannelShuffle": ("nn.ChannelShuffle(2)(x(2, 4, 6, 6))",),
    "CosineEmbeddingLoss": ("nn.CosineEmbeddingLoss()(x(3, 5), x(3, 5), torch.ones(3).to('mps'))",),
    "CosineSimilarity": ("nn.CosineSimilarity()(x(3, 5), x(3, 5))",),
    "CrossEntropyLoss": (f"nn.CrossEntropyLoss(){_CLASSES}", f"nn.CrossEntropyLoss(label_smoothing=0.1){_CLASSES}"),
    "CrossMapLRN2d": ("nn.CrossMapLRN2d(3)(x(2, 4, 6, 6))",),
    "Embedding": ("nn.Embedding(10, 4)(ints(10, 2, 3))",),
    "EmbeddingBag": (
        "nn.EmbeddingBag(10, 4)(ints(10, 2, 3))",
        "nn.EmbeddingBag(10, 4, mode='max')(ints(10, 2, 3))",
        "nn.EmbeddingBag(10, 4, mode='sum')(ints(10, 6), torch.tensor([0, 3]).to('mps'))",
    ),
    "Fold": ("nn.Fold((6, 6), (3, 3))(x(2, 18, 16))",),
    "GELU": ("nn.GELU()(x(4, 5))", "nn.GELU('tanh')(x(4, 5))"),
    "GRU": (f"nn.GRU(4, 6){_RNN}", f"nn.GRU(4, 6, 2, bidirectional=True, dropout=0.1){_RNN}"),
    "GRUCell": (f"nn.GRUCell(4, 6){_CELL}",),
    "GaussianNLLLoss": ("nn.GaussianNLLLoss()(x(4, 5), x(4, 5), x(4, 5) + 0.1)",),
    "GroupNorm": ("nn.GroupNorm(2, 4)(x(2, 4, 6, 6))",),
    "HingeEmbeddingLoss": ("nn.HingeEmbeddingLoss()(x(4, 5), torch.ones(4, 5).to('mps'))",),
    "LSTM": (
        f"nn.LSTM(4, 6){_RNN}",
        f"nn.LSTM(4, 6, 2, bidirectional=True, dropout=0.1){_RNN}",
    ),
    "LSTMCell": (f"nn.LSTMCell(4, 6){_CELL}",),
    "LayerNorm": ("nn.LayerNorm(6)(x(2, 4, 6))",),
    "LazyLinear": ("nn.LazyLinear(6)(x(2, 4))",),
    "Linear": ("nn.Linear(4, 6)(x(2, 4))", "nn.Linear(4, 6)(x(2, 3, 4))", "nn.Linear(4, 6, bias=False)(x(2, 4))"),
    "LinearCrossEntropyLoss": ("nn.LinearCrossEntropyLoss(8, 5)(x(4, 8), ints(5, 4))",),
    "LocalResponseNorm": ("nn.LocalResponseNorm(2)(x(2, 4, 6, 6))",),
    "MarginRankingLoss": ("nn.MarginRankingLoss()(x(4), x(4), torch.ones(4).to('mps'))",),
    "MaxUnpool1d": ("nn.MaxUnpool1d(2)(x(2, 4, 8), torch.arange(0, 16, 2).expand(2, 4, 8).to('mps'))",),
    "MaxUnpool2d": ("nn.MaxUnpool2d(2)(x(2, 4, 2, 2), torch.tensor([[0, 2], [8, 10]]).expand(2, 4, 2, 2).to('mps'))",),
    "MaxUnpool3d": ("nn.MaxUnpool3d(2)(x(2, 4, 1, 2, 2), (8 * ints(1, 2, 4, 1, 2, 2)))",),
    "MultiLabelMarginLoss": ("nn.MultiLabelMarginLoss()(x(4, 5), ints(5, 4, 5))",),
    "MultiLabelSoftMarginLoss": ("nn.MultiLabelSoftMarginLoss()(x(4, 5), x(4, 5))",),
    "MultiMarginLoss": (f"nn.MultiMarginLoss(){_CLASSES}",),
    "MultiheadAttention": (
        "nn.MultiheadAttention(8, 2)(x(5, 2, 8), x(5, 2, 8), x(5, 2, 8))",
        "nn.MultiheadAttention(8, 2, batch_first=True)(x(2, 5, 8), x(2, 5, 8), x(2, 5, 8), need_weights=False)",
        "nn.MultiheadAttention(8, 2, dropout=0.1, add_bias_kv=True)(x(5, 2, 8), x(5, 2, 8), x(5, 2, 8), bools(2, 5))",
        "nn.MultiheadAttention(8, 2, kdim=6, vdim=6)(x(5, 2, 8), x(5, 2, 6), x(5, 2, 6))",
    ),
    "NLLLoss": ("nn.NLLLoss()(x(4, 5), ints(5, 4))", "nn.NLLLoss()(x(4, 5, 3, 3), ints(5, 4, 3, 3))"),
    "NLLLoss2d": ("nn.NLLLoss2d()(x(4, 5, 3, 3), ints(5, 4, 3, 3))",),
    "PairwiseDistance": ("nn.PairwiseDistance()(x(4, 5), x(4, 5))",),
    "PixelShuffle": ("nn.PixelShuffle(2)(x(2, 4, 6, 6))",),
    "PixelUnshuffle": ("nn.PixelUnshuffle(2)(x(2, 4, 6, 6))",),
    "RMSNorm": ("nn.RMSNorm(6)(x(2, 4, 6))",),
    "RNN": (
        f"nn.RNN(4, 6){_RNN}",
        f"nn.RNN(4, 6, 2, bidirectional=True, dropout=0.1, nonlinearity='relu'){_RNN}",
    ),
    "RNNCell": (f"nn.RNNCell(4, 6){_CELL}", f"nn.RNNCell(4, 6, nonlinearity='relu'){_CELL}"),
    "SoftMarginLoss": (f"nn.SoftMarginLoss(){_LOSS}",),
    "Softmax2d": ("nn.Softmax2d()(x(2, 4, 6, 6))",),
    "SyncBatchNorm": ("nn.SyncBatchNorm(4)(x(2, 4, 6, 6))",),
    "Transformer": (f"nn.Transformer(8, 2, 1, 1, 16)({_SOURCE}, {_SOURCE})",),
    "TransformerDecoder": (
        f"nn.TransformerDecoder(nn.TransformerDecoderLayer{_LAYER}, 1)({_SOURCE}, {_SOURCE})",
    ),
    "TransformerDecoderLayer": (f"nn.TransformerDecoderLayer{_LAYER}({_SOURCE}, {_SOURCE})",),
    "TransformerEncoder": (
        f"nn.TransformerEncoder(nn.TransformerEncoderLayer{_LAYER}, 1)({_SOURCE})",
        f"nn.TransformerEncoder(nn.TransformerEncoderLayer{_LAYER}, 1)({_SOURCE}, src_key_padding_mask=bools(2, 5))",
    ),
    "TransformerEncoderLayer": (
        f"nn.TransformerEncoderLayer{_LAYER}({_SOURCE})",
        "nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation='gelu', norm_first=True)(x(2, 5, 8))",
    ),
    "TripletMarginLoss": ("nn.TripletMarginLoss()(x(4, 5), x(4, 5), x(4, 5))",),
    "TripletMarginWithDistanceLoss": ("nn.TripletMarginWithDistanceLoss()(x(4, 5), x(4, 5), x(4, 5))",),
    "Unflatten": ("nn.Unflatten(1, (2, 2))(x(2, 4, 6))",),
    "Unfold": ("nn.Unfold((3, 3))(x(2, 4, 6, 6))",),
    "Upsample": tuple(f"nn.Upsample(scale_factor=2, mode={mode!r})({shape})" for mode, shape in _MODES),
    "UpsamplingBilinear2d": ("nn.UpsamplingBilinear2d(scale_factor=2)(x(2, 4, 6, 6))",),
    "UpsamplingNearest2d": ("nn.UpsamplingNearest2d(scale_factor=2)(x(2, 4, 6, 6))",),
}  # fmt: skip
#: Operators of Python's syntax with a second operand.
_BINARY = (
    "add", "div", "eq", "floordiv", "ge", "gt", "iadd", "idiv", "ifloordiv", "imod", "imul", "ipow",
    "isub", "itruediv", "le", "lt", "mod", "mul", "ne", "pow", "radd", "rdiv", "rfloordiv", "rmod", "rmul",
    "rpow", "rsub", "rtruediv", "sub", "truediv",
)  # fmt: skip
_BITS = ("rand", "rlshift", "ror", "rrshift", "rxor")
_UNARY = ("abs", "neg", "pos")
#: Operators that copy a single value to Python.
_VALUES = ("bool", "complex", "float", "index", "int", "nonzero")
#: Attributes and methods of a tensor that describe it: no operator runs.
_METADATA = (
    "_backward_hooks", "_base", "_cdata", "_grad", "_grad_fn", "_post_accumulate_grad_hooks", "device", "dtype",
    "grad", "grad_dtype", "grad_fn", "is_cpu", "is_cuda", "is_ipu", "is_leaf", "is_maia", "is_meta", "is_mkldnn",
    "is_mps", "is_mtia", "is_nested", "is_quantized", "is_sparse", "is_sparse_csr", "is_vulkan", "is_xla", "is_xpu",
    "itemsize", "layout", "name", "nbytes", "ndim", "output_nr", "requires_grad", "retains_grad", "shape",
    "volatile",
)  # fmt: skip
_DESCRIBED = (
    "__len__", "_is_view", "data_ptr", "dim", "dim_order", "element_size", "get_device", "is_shared", "ndimension",
    "nelement", "numel", "size", "storage_offset", "stride", "type", "untyped_storage",
)  # fmt: skip
#: Functions of torch.nn.init, with what follows the tensor.
_INIT = {
    "constant_": ", 0.5", "dirac_": "", "eye_": "", "kaiming_normal_": "", "kaiming_uniform_": "", "normal_": "",
    "ones_": "", "orthogonal_": "", "sparse_": ", 0.5", "trunc_normal_": "", "uniform_": "", "xavier_normal_": "",
    "xavier_uniform_": "", "zeros_": "",
}  # fmt: skip
#: Classes of torch.optim, with what follows the parameters; a second example may be refused by older releases.
_OPTIMIZERS = {
    "ASGD": "", "Adadelta": "", "Adafactor": "", "Adagrad": "", "Adam": "", "AdamW": "", "Adamax": "", "Muon": "",
    "NAdam": "", "RAdam": "", "RMSprop": "", "Rprop": "", "SGD": ", 0.1, momentum=0.9",
}  # fmt: skip
#: Arguments of multi_head_attention_forward after the biases: those of keys and values, a zero, dropout, the output's.
_REST = "(None, None, False, 0.0, x(8, 8), x(8))"
_ROTARY = "rotary(x(1, 2, 6, 8), x(6, 8), x(6, 8))"

#: Functions of torch.nn.functional that are made of several operators, with their arguments.
_FUNCTIONAL = {
    "cross_entropy": (_CLASSES, _CLASSES[:-1] + ", label_smoothing=0.1)", "(x(4, 5), x(4, 5))"),
    "dropout2d": ("(x(2, 4, 6, 6))", "(x(2, 4, 6, 6), training=False)"),
    "dropout3d": ("(x(2, 4, 6, 6, 6))", "(x(2, 4, 6, 6, 6), training=False)"),
    "gaussian_nll_loss": ("(x(4, 5), x(4, 5), x(4, 5) + 0.1)",),
    "interpolate": (
        *(f"({shape}, scale_factor=2, mode={mode!r})" for mode, shape in _MODES),
        "(x(2, 4, 8, 8), size=(4, 4), mode='area')",
        "(x(2, 4, 8, 8), scale_factor=2, mode='bilinear', antialias=True)",
    ),
    "linear_cross_entropy": ("(x(4, 8), x(5, 8), ints(5, 4))",),
    "local_response_norm": ("(x(2, 4, 6, 6), 2)",),
    "max_unpool1d": ("(x(2, 4, 8), 2 * ints(1, 2, 4, 8), 2)",),
    "multilabel_soft_margin_loss": (_LOSS,),
    "nll_loss": (_CLASSES, "(x(4, 5, 3, 3), ints(5, 4, 3, 3))"),
    "normalize": ("(x(4, 5))",),
    "softmin": ("(x(4, 5), 1)",),
    "softsign": ("(x(4, 5))",),
    "tanhshrink": ("(x(4, 5))",),
    "triplet_margin_with_distance_loss": ("(x(4, 5), x(4, 5), x(4, 5))",),
    "upsample_bilinear": ("(x(2, 4, 6, 6), scale_factor=2)",),
    "upsample_nearest": ("(x(2, 4, 6, 6), scale_factor=2)", "(x(2, 4, 6), scale_factor=2)"),
}  # fmt: skip
_WINDOWS = {
    "bartlett": "", "blackman": "", "cosine": "", "exponential": "", "gaussian": "", "general_cosine": ", a=[0.5, 0.5]",
    "general_hamming": "", "hamming": "", "hann": "", "kaiser": "", "nuttall": "",
}  # fmt: skip
_MASKED = (
    "amax",
    "amin",
    "mean",
    "median",
    "norm",
    "normalize",
    "prod",
    "softmax",
    "softmin",
    "std",
    "sum",
    "var",
)
_MASKED_ARGUMENTS = {
    "median": ", 1",
    "norm": ", 2, 1",
    "normalize": ", 2, 1",
    "softmax": ", 1",
    "softmin": ", 1",
}
#: Classes of torch.distributions, with the arguments of their constructors.
_DISTRIBUTIONS = {
    "Bernoulli": "x(4)", "Beta": "x(4), x(4)", "Binomial": "8, x(4)", "Categorical": "x(4, 5)", "Cauchy": "x(4), x(4)",
    "Chi2": "x(4)", "Dirichlet": "x(4, 5)", "Exponential": "x(4)", "FisherSnedecor": "x(4), x(4)",
    "Gamma": "x(4), x(4)", "Geometric": "x(4)", "Gumbel": "x(4), x(4)", "HalfCauchy": "x(4)", "HalfNormal": "x(4)",
    "InverseGamma": "x(4), x(4)", "Kumaraswamy": "x(4), x(4)", "Laplace": "x(4), x(4)", "LogNormal": "x(4), x(4)",
    "LowRankMultivariateNormal": "x(4), x(4, 2), x(4)", "Multinomial": "8, x(4)",
    "MultivariateNormal": "x(4), torch.eye(4).to('mps')", "NegativeBinomial": "8, x(4)", "Normal": "x(4), x(4)",
    "OneHotCategorical": "x(4, 5)", "Pareto": "x(4), x(4)", "Poisson": "x(4)", "RelaxedBernoulli": "x(1), x(4)",
    "RelaxedOneHotCategorical": "x(1), x(4, 5)", "StudentT": "x(4)", "Uniform": "x(4), x(4) + 1",
    "VonMises": "x(4), x(4)", "Weibull": "x(4), x(4)", "Wishart": "x(1) + 5, torch.eye(4).to('mps')",
}  # fmt: skip
_CASTS = ("bfloat16", "bool", "byte", "cfloat", "char", "half", "int", "long", "short")

#: Functions and methods that Python implements, or that have another name than their operator; and usual words for
#: a few lines of Python.
FUNCTIONS: dict[str, tuple[str, ...]] = {
    **{f"Tensor.__{name}__": (f"x(4, 4).__{name}__(2)", f"x(4, 4).__{name}__(x(4, 4))") for name in _BINARY},
    **{f"Tensor.__{name}__": (f"ints(9, 4).__{name}__(2)", f"ints(9, 4).__{name}__(ints(9, 4))") for name in _BITS},
    **{f"Tensor.__{name}__": (f"x(4, 4).__{name}__()",) for name in _UNARY},
    **{f"Tensor.__{name}__": (f"ints(9).__{name}__()",) for name in _VALUES},
    **{f"Tensor.{name}": (f"getattr(x(4, 4), {name!r})",) for name in _METADATA},
    **{f"Tensor.{name}": (f"x(4, 4).{name}()",) for name in _DESCRIBED},
    **{f"nn.init.{name}": (f"nn.init.{name}({'x(4, 4, 3)' if name == 'dirac_' else 'x(4, 4)'}{rest})",)
       for name, rest in _INIT.items()},
    **{f"nn.functional.lp_pool{n}d": (f"F.lp_pool{n}d({tensor}, 2, 2)",) for n, tensor in _MAPS.items()},
    **{f"nn.functional.adaptive_max_pool{n}d_with_indices": (f"F.adaptive_max_pool{n}d_with_indices({tensor}, 4)",)
       for n, tensor in _MAPS.items()},
    **{f"nn.functional.fractional_max_pool{n}d_with_indices":
       (f"F.fractional_max_pool{n}d_with_indices({_MAPS[n]}, 2, output_size=4)",) for n in (2, 3)},
    **{f"nn.functional.{name}": tuple(f"F.{name}{each}" for each in each_form)
       for name, each_form in _FUNCTIONAL.items()},
    **{f"signal.windows.{name}": (f"torch.signal.windows.{name}(9{rest}, device='mps')",)
       for name, rest in _WINDOWS.items()},
    **{f"masked.{name}": (f"torch.masked.{name}(x(4, 5){_MASKED_ARGUMENTS.get(name, ', 1')}, mask=bools(4, 5))",)
       for name in _MASKED},
    **{f"Tensor.{name}": (f"x(4).{name}()",) for name in _CASTS},
    **{f"optim.{name}": (f"torch.optim.{name}([grown(4, 4)]{rest}).step()",) for name, rest in _OPTIMIZERS.items()},
    **{f"distributions.{name}": (f"drawn(torch.distributions.{name}({made}))",
                                 f"weighed(torch.distributions.{name}({made}))")
       for name, made in _DISTRIBUTIONS.items()},
    "Tensor.__contains__": ("x(4).__contains__(1.0)",),
    "Tensor.__deepcopy__": ("x(4).__deepcopy__({})",),
    "Tensor.__format__": ("x(4).__format__('')",),
    "Tensor.__getitem__": (
        "x(4, 4).__getitem__(0)", "x(4, 4).__getitem__((slice(None), slice(1, 3)))",
        "x(4, 4).__getitem__(ints(4, 3))", "x(4, 4).__getitem__(bools(4, 4))", "x(4, 4).__getitem__(None)",
    ),
    "Tensor.__invert__": ("bools(4).__invert__()",),
    "Tensor.__iter__": ("x(4, 4).__iter__()",),
    "Tensor.__long__": ("ints(9).__long__()",),
    "Tensor.__matmul__": ("x(4, 4).__matmul__(x(4, 4))", "x(2, 4, 4).__matmul__(x(2, 4, 4))"),
    "Tensor.__repr__": ("x(4).__repr__()",),
    "Tensor.__reversed__": ("x(4, 4).__reversed__()",),
    "Tensor.__rmatmul__": ("x(4, 4).__rmatmul__(x(4, 4))",),
    "Tensor.__setitem__": (
        "x(4, 4).__setitem__(0, 1.0)", "x(4, 4).__setitem__(slice(1, 3), x(2, 4))",
        "x(4, 4).__setitem__(ints(4, 3), 1.0)", "x(4, 4).__setitem__(bools(4, 4), 1.0)",
    ),
    "Tensor.backward": ("(x(4).requires_grad_() * 2).sum().backward()",),
    "Tensor.cpu": ("x(4).cpu()",),
    "Tensor.new": ("x(4).new(3)",),
    "Tensor.new_tensor": ("x(4).new_tensor([1.0])",),
    "Tensor.register_hook": ("x(4).requires_grad_().register_hook(print)",),
    "Tensor.register_post_accumulate_grad_hook": ("x(4).requires_grad_().register_post_accumulate_grad_hook(print)",),
    "Tensor.storage": ("x(4).storage()",),
    "Tensor.tolist": ("x(4).tolist()",),
    "amp.GradScaler": ("scaled(torch.amp.GradScaler('mps'), torch.optim.SGD([grown(4)], 0.1), x())",),
    "as_tensor": ("torch.as_tensor([1.0], device='mps')",),
    "asarray": ("torch.asarray([1.0], device='mps')",),
    "broadcast_shapes": ("torch.broadcast_shapes((2, 1), (1, 2))",),
    "is_storage": ("torch.is_storage(x(4))",),
    "is_tensor": ("torch.is_tensor(x(4))",),
    "optim.LBFGS": ("torch.optim.LBFGS([grown(4, 4)]).step(lambda: x(3).sum())",),
    "lobpcg": ("torch.lobpcg(torch.eye(9).to('mps'), k=2)",),
    "lu": ("torch.lu(x(4, 4))",),
    "nn.functional.dropout1d": ("F.dropout1d(x(2, 4, 6))",),
    "nn.functional.grouped_mm": ("F.grouped_mm(x(2, 8, 8).bfloat16(), x(2, 8, 8).bfloat16())",),
    "nn.functional.gumbel_softmax": ("F.gumbel_softmax(x(4, 5))", "F.gumbel_softmax(x(4, 5), hard=True)"),
    "nn.functional.multi_head_attention_forward": (
        f"F.multi_head_attention_forward({_SOURCE}, {_SOURCE}, {_SOURCE}, 8, 2, x(24, 8), x(24), *{_REST})",
    ),
    "nn.functional.upsample": ("F.upsample(x(2, 4, 6, 6), scale_factor=2)",),
    "nn.utils.clip_grad_norm_": ("nn.utils.clip_grad_norm_([grown(4, 4)], 1.0)",),
    "nn.utils.clip_grad_value_": ("nn.utils.clip_grad_value_([grown(4, 4)], 1.0)",),
    "nn.utils.parameters_to_vector": ("nn.utils.parameters_to_vector([grown(4, 4), grown(4)])",),
    "nn.utils.rnn.pack_padded_sequence": (
        "nn.utils.rnn.pack_padded_sequence(x(5, 2, 4), torch.tensor([5, 3]))",
        "nn.utils.rnn.pack_padded_sequence(x(5, 2, 4), torch.tensor([3, 5]), enforce_sorted=False)",
    ),
    "nn.utils.rnn.pad_packed_sequence": (
        "nn.utils.rnn.pad_packed_sequence(nn.utils.rnn.pack_padded_sequence(x(5, 2, 4), torch.tensor([5, 3])))",
    ),
    "nn.utils.rnn.pad_sequence": ("nn.utils.rnn.pad_sequence([x(5, 4), x(3, 4)])",),
    "nn.utils.vector_to_parameters": ("nn.utils.vector_to_parameters(x(16), [grown(4, 4)])",),
    "pca_lowrank": ("torch.pca_lowrank(x(6, 4), 2)",),
    "rope": (_ROTARY, "rotary_complex(x(1, 2, 6, 8), x(6, 4))"),
    "spmm": ("torch.spmm(x(4, 4), x(4, 4))",),
    "svd_lowrank": ("torch.svd_lowrank(x(6, 4), 2)",),
    "tensor": ("torch.tensor([1.0], device='mps')",),
    "unique": ("torch.unique(ints(4, 9))", "torch.unique(ints(4, 9, 2), dim=0)",
               "torch.unique(ints(4, 9), return_inverse=True, return_counts=True)"),
    "unravel_index": ("torch.unravel_index(ints(9, 4), (3, 3))",),
}  # fmt: skip
