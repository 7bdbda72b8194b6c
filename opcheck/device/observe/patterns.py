"""The texts that a Mac prints, as one table: what each says, which releases print it, and where it stands in PyTorch.

What a curated statement quotes is not here: ``statement_texts`` reads those from the op lists.  No pattern repeats what
itself repeats, and each repetition has an end, so that the time for a line grows with its length alone.
"""

from __future__ import annotations

from opcheck.device.observe.pattern import row
from opcheck.device.observe.sizes import SIZE

_OP = r"[\"'\u2018\u2019`*]{0,6}(?P<op>[A-Za-z_]\w{0,60}::[\w.]{1,120})[\"'\u2018\u2019`*]{0,6}"
_FALLBACK = "aten/src/ATen/mps/MPSFallback.mm"
_ALLOCATOR = "aten/src/ATen/mps/MPSAllocator.mm"
_UTILS = "aten/src/ATen/native/mps/OperationUtils.mm"
_MPSGRAPH = ""


#: First match wins; a wording stands before a shorter one that it holds.
PATTERNS = (
    # -- operators without a kernel ---------------------------------------------------------------------------
    row(
        "fallback",
        "on the MPS",
        rf"The operator {_OP} is not currently supported on the MPS backend and will fall back to run on the CPU"
        r"(?:\. This may have performance implications\. \(Triggered internally at {1,2}[^)\s]{1,300}MPSFallback\.mm:(?P<source_line>\d{1,5}))?",
        _FALLBACK,
    ),
    row(
        "no_kernel",
        "for the MPS",
        rf"The distributed operator {_OP} is not currently implemented for the MPS device"
        r"(?:.{0,300}?commit hash (?P<commit>[0-9a-f]{40}))?",
        _FALLBACK,
        since="2.11",
    ),
    row(
        "no_kernel",
        "for the MPS",
        rf"The operator {_OP} is not current implemented for the MPS device",
        _FALLBACK,
        until="1.13",
    ),
    row(
        "no_kernel",
        "for the MPS",
        rf"The operator {_OP} is not currently implemented for the MPS device\. If you want this op to be added in priority",
        _FALLBACK,
        since="1.13",
        until="2.6",
    ),
    row(
        "no_kernel",
        "for the MPS",
        rf"The operator {_OP} is not currently implemented for the MPS device\. If you want this op to be considered"
        r"(?:.{0,300}?commit hash (?P<commit>[0-9a-f]{40}))?",
        _FALLBACK,
        since="2.6",
    ),
    row(
        "no_kernel",
        "for the MPS",
        rf"The operator {_OP} is not currently implemented for the MPS",
        _FALLBACK,
        since="1.13",
    ),
    row(
        "no_cpu_kernel",
        "Could not run",
        rf"Could not run {_OP} with arguments from the ['\u2018](?P<backend>(?:Sparse(?:Csr)?|Nested\w{{0,10}}|Quantized)?MPS|CPU|(?:Sparse|Nested|Quantized)\w{{0,20}}CPU)['\u2019] backend",
        "aten/src/ATen/core/dispatch/OperatorEntry.cpp",
    ),
    # -- devices that no Mac has ------------------------------------------------------------------------------
    row(
        "no_cuda",
        "compiled with",
        r"Torch not compiled with (?:CUDA|XPU) enabled",
        "torch/cuda/__init__.py, torch/xpu/__init__.py",
    ),
    row(
        "no_cuda",
        "deserialize object",
        r"Attempting to deserialize object on (?:a )?CUDA device.{0,60}",
        "torch/serialization.py",
    ),
    row(
        "no_cuda",
        "NCCL built in",
        r"Distributed package doesn't have NCCL built in",
        "torch/distributed/distributed_c10d.py",
    ),
    # -- tensors that are on the CPU --------------------------------------------------------------------------
    row(
        "device_mix",
        "Placeholder storage",
        r"Placeholder storage has not been allocated on MPS device!",
        _UTILS,
    ),
    row(
        "device_mix",
        "Passed CPU tensor",
        r"Passed CPU tensor to MPS op",
        "aten/src/ATen/native/mps/OperationUtils.h",
        since="2.6",
    ),
    row(
        "device_mix",
        "Tensor for argument",
        r"Tensor for argument (?P<argument>\w{1,60}) is on (?P<device>\w{1,20}) but expected on mps",
        "aten/src/ATen/native/mps/operations/Linear.mm",
        since="2.4",
    ),
    row(
        "device_mix",
        "expected it to be on GPU",
        r"Tensor for argument #\d{1,2} '(?P<argument>\w{1,60})' is on CPU, but expected it to be on GPU \(while checking arguments for (?P<function>\w{1,60})\)",
        "aten/src/ATen/TensorUtils.cpp",
    ),
    row(
        "device_mix",
        "slow_conv2d_forward_mps",
        r"slow_conv2d_forward_mps: input\(device='(?P<device>[\w:]{1,20})'\) and weight\(device=[\w:]{1,20}'?\) {1,2}must be on the same device",
        _FALLBACK,
        since="1.13",
        op="aten::_slow_conv2d_forward",
    ),
    row(
        "device_mix",
        "on the same device",
        r"Expected all tensors to be on the same device, but found at least two devices, (?=[^!]{0,40}mps)(?P<device>[\w:]{1,20}) and [\w:]{1,20}!",
        "aten/src/ATen/TensorIterator.cpp",
    ),
    row(
        "device_mix",
        "weight type",
        r"Input type \((?P<input>(?:torch\.)?\w{0,20}(?:\.\w{1,20})?(?:MPS|mps)\.?\w{0,20})\) and weight type \((?P<weight>[\w.]{1,40})\) should be the same",
        "aten/src/ATen/native/Convolution.cpp",
    ),
    row(
        "device_mix",
        "on the same device as the indexed",
        r"indices should be either on (?P<device>cpu|mps) or on the same device as the indexed tensor",
        "aten/src/ATen/native/TensorAdvancedIndexing.cpp",
        op="aten::index.Tensor",
    ),
    # -- memory -----------------------------------------------------------------------------------------------
    row(
        "out_of_memory",
        "MPS backend out of memory",
        rf"MPS backend out of memory \(MPS allocated: (?P<allocated>{SIZE}), other allocations: (?P<other>{SIZE}), max allowed: (?P<allowed>{SIZE})\)"
        rf"(?:\. Tried to allocate (?P<asked>{SIZE}) on (?P<pool>\w{{1,20}}) pool)?",
        _ALLOCATOR,
        since="1.13",
    ),
    row("out_of_memory", "out of memory", r"MPS backend out of memory", _ALLOCATOR),
    row(
        "out_of_memory",
        "Invalid buffer size",
        rf"Invalid buffer size: (?P<asked>{SIZE})",
        _ALLOCATOR,
    ),
    # -- settings ---------------------------------------------------------------------------------------------
    row(
        "setting",
        "watermark ratio",
        r"invalid (?P<which>high|low) watermark ratio (?P<ratio>-?\d{1,9}(?:\.\d{1,9})?)",
        _ALLOCATOR,
        since="1.13",
    ),
    row(
        "setting",
        "passed to PYTORCH_MPS",
        r"invalid (?P<which>log options|profiling options|signpost types) (?P<value>-?\d{1,20}) ?passed to (?P<variable>PYTORCH_MPS_\w{1,40})",
        "aten/src/ATen/mps/MPSProfiler.mm",
        since="2.1",
    ),
    row(
        "setting",
        "MPS allocator config",
        r"Unrecognized key '(?P<which>[^']{1,60})' in MPS allocator config",
        _ALLOCATOR,
        since="2.14",
    ),
    # -- the kernels that torch.compile writes ----------------------------------------------------------------
    row(
        "compile_failed",
        "failed to compile",
        r"SyntaxError: failed to compile",
        "aten/src/ATen/native/mps/OperationUtils.mm",
        since="2.6",
    ),
    row(
        "compile_failed",
        "program_source:",
        r"program_source:(?P<source_line>\d{1,7}):\d{1,5}: error: (?P<error>.{1,300})",
        "",
    ),
    row(
        "compile_failed",
        "metal library, error",
        r"Failed to create metal library, error: (?P<error>.{0,300})",
        _UTILS,
        since="2.4",
    ),
    # -- what ends the process --------------------------------------------------------------------------------
    row(
        "aborted",
        "failed assertion",
        r"(?:(?P<file>[\w+-]{1,80}\.(?:mm|m|cpp|cc|h)):(?P<source_line>\d{1,7}): )?failed assertion [`'\u2018\"]?(?P<error>[^'`\n]{1,400})",
        _MPSGRAPH,
    ),
    row(
        "aborted",
        "' op ",
        r"error: '(?P<mlir>(?:mps|mpsx|anec|placement|func|tensor)\.\w{1,60})' op (?P<error>.{1,300})",
        _MPSGRAPH,
    ),
    row(
        "aborted",
        "broadcast compatible",
        r"(?:loc\(\"(?P<mlir>[\w/*+.-]{1,80})\".{0,600}?)?error: input types (?P<error>'tensor<[^']{1,120}' and 'tensor<[^']{1,120}' are not broadcast compatible)",
        _MPSGRAPH,
    ),
    row("aborted", "LLVM ERROR", r"LLVM ERROR: (?P<error>.{1,300})", _MPSGRAPH),
    row(
        "gpu_error",
        "CommandBufferCallbackError",
        r"(?P<error>[A-Z][^()]{0,100})\((?P<code>[0-9a-f]{8}):(?P<name>kIO(?:GPU|Accel)CommandBufferCallbackError\w{1,40})\)",
        "",
    ),
    row(
        "gpu_error",
        "command buffer exited",
        r"command buffer exited with error status",
        "",
    ),
    row(
        "refused",
        "INTERNAL ASSERT FAILED",
        r"(?P<condition>\S.{0,200}) INTERNAL ASSERT FAILED at \"[^\"]{0,200}?(?P<file>/aten/src/ATen/(?:native/)?mps/[^\"]{1,120})\":(?P<source_line>\d{1,6})",
        "",
    ),
    row(
        "aborted",
        "libc++abi",
        r"libc\+\+abi: terminating (?:due to|with) uncaught exception of type (?P<type>\w{1,30}(?:::\w{1,30}){0,4})(?:: (?P<error>.{1,400}))?",
        "",
    ),
)

#: The beginnings of texts that statements quote in full, for logs that cut them short; tried last.
CUT_SHORT = (
    row(
        "refused",
        "Cannot convert a MPS Tensor",
        r"Cannot convert a MPS Tensor to (?P<dtype>float64) dtype",
        "aten/src/ATen/mps/EmptyTensor.cpp",
    ),
    row(
        "refused",
        "to the MPS backend but",
        r"Trying to convert (?P<dtype>\w{1,30}) to the MPS backend but it does not have support for that dtype",
        _UTILS,
    ),
    row("refused", "Undefined type", r"Undefined type (?P<dtype>\w{1,30})\b", _UTILS, since="2.0"),
    row(
        "refused",
        "at the MPS device",
        r"Output channels > 65536 not supported at the MPS device",
        "aten/src/ATen/native/mps/operations/Convolution.mm",
        since="2.4",
    ),
    row(
        "refused",
        "Adaptive pool MPS",
        r"Adaptive pool MPS: (?P<error>.{1,200})",
        "aten/src/ATen/native/mps/operations/AdaptivePooling.mm",
    ),
    row(
        "detour",
        "Falling back on CPU",
        r"MPS: (?P<error>.{1,200}?)Falling back on CPU",
        "",
    ),
    row(
        "aborted",
        "op contracting dimensions",
        r"error: '(?P<mlir>[\w.]{1,60})' op (?P<error>.{1,200})",
        _MPSGRAPH,
    ),
)
