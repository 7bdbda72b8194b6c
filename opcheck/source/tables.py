"""The values of names on a Mac, and what torch.cuda does in a build without CUDA."""

from __future__ import annotations

from opcheck.common.versions import Target, Version

#: The values of names and calls on a Mac whose torch has MPS.
ON_A_MAC: dict[str, object] = {
    "torch.cuda.is_available()": False,
    "torch.cuda.is_bf16_supported()": False,
    "torch.cuda.is_initialized()": False,
    "torch.cuda.device_count()": 0,
    "torch.version.cuda": None,
    "torch.version.hip": None,
    "torch.backends.cuda.is_built()": False,
    "torch.backends.cudnn.is_available()": False,
    "torch.distributed.is_nccl_available()": False,
    "torch.distributed.Backend.NCCL": "nccl",
    "torch.backends.mps.is_available()": True,
    "torch.backends.mps.is_built()": True,
    "torch.mps.is_available()": True,
    "torch.has_mps": True,
    "torch.has_cuda": False,
    "sys.platform": "darwin",
    "platform.system()": "Darwin",
    "platform.machine()": "arm64",
    "os.name": "posix",
    "typing.TYPE_CHECKING": False,
}

#: Devices, and backends of torch.distributed, that no Mac has, other than CUDA's.
NOT_ON_A_MAC = {"nccl", "NCCL", "npu", "xpu", "hpu", "mlu", "musa"}

#: The exceptions of an import that fails, and of a call without CUDA.
IMPORT_ERRORS = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
CUDA_ERRORS = {"AssertionError", "Exception", "BaseException"}

NOT_COMPILED = "AssertionError: Torch not compiled with CUDA enabled"

#: The names in torch.cuda that do nothing, or return nothing, in a build without CUDA (measured on
#: torch 2.13.0), and what to use instead on MPS; empty where nothing is needed.
IDLE: dict[str, str] = {
    "caching_allocator_enable": "",
    "empty_cache": "torch.mps.empty_cache()",
    "get_arch_list": "",
    "get_rng_state_all": "torch.mps.get_rng_state()",
    "ipc_collect": "",
    "manual_seed": "torch.manual_seed, which seeds MPS, too",
    "manual_seed_all": "torch.manual_seed, which seeds MPS, too",
    "max_memory_allocated": "torch.mps.current_allocated_memory(); MPS keeps no maximum",
    "max_memory_cached": "torch.mps.driver_allocated_memory(); MPS keeps no maximum",
    "max_memory_reserved": "torch.mps.driver_allocated_memory(); MPS keeps no maximum",
    "memory_allocated": "torch.mps.current_allocated_memory()",
    "memory_cached": "torch.mps.driver_allocated_memory()",
    "memory_reserved": "torch.mps.driver_allocated_memory()",
    "memory_stats": "torch.mps.current_allocated_memory()",
    "seed": "torch.manual_seed, which seeds MPS, too",
    "seed_all": "torch.manual_seed, which seeds MPS, too",
    "set_rng_state": "torch.mps.set_rng_state()",
    "set_rng_state_all": "torch.mps.set_rng_state()",
}

_NO_TYPE = "AttributeError: module 'torch._C' has no attribute '_cuda_{}'"
_DUMMY = "RuntimeError: Tried to instantiate dummy base class {}"
_NVTX = "RuntimeError: NVTX functions not installed. Are you sure you have a CUDA build?"

#: The names in torch.cuda that raise in a build without CUDA, and their errors; measured likewise.
RAISES: dict[str, str] = {
    **dict.fromkeys(
        (
            "caching_allocator_alloc",
            "can_device_access_peer",
            "cudart",
            "current_blas_handle",
            "current_device",
            "current_stream",
            "default_stream",
            "get_device_capability",
            "get_device_name",
            "get_device_properties",
            "get_rng_state",
            "init",
            "initial_seed",
            "mem_get_info",
            "profiler.profile",
            "profiler.start",
            "profiler.stop",
            "set_per_process_memory_fraction",
            "set_sync_debug_mode",
            "synchronize",
        ),
        NOT_COMPILED,
    ),
    "CUDAGraph": _DUMMY.format("CUDAGraph"),
    "Event": _DUMMY.format("Event"),
    "MemPool": _DUMMY.format("MemPool"),
    "Stream": _DUMMY.format("Stream"),  # another text since 2.10: see printed()
    "device": "",
    "graph": _DUMMY.format("CUDAGraph"),
    "graph_pool_handle": _DUMMY.format("_graph_pool_handle"),
    "is_current_stream_capturing": _DUMMY.format("_cuda_isCurrentStreamCapturing"),
    "make_graphed_callables": _DUMMY.format("CUDAGraph"),
    "memory_snapshot": _NO_TYPE.format("memorySnapshot"),
    "memory_summary": "KeyError: 'allocated_bytes.all.current'",
    "nvtx.mark": _NVTX,
    "nvtx.range": _NVTX,
    "nvtx.range_pop": _NVTX,
    "nvtx.range_push": _NVTX,
    "reset_accumulated_memory_stats": _NO_TYPE.format("resetAccumulatedMemoryStats"),
    "reset_max_memory_allocated": _NO_TYPE.format("resetPeakMemoryStats"),
    "reset_max_memory_cached": _NO_TYPE.format("resetPeakMemoryStats"),
    "reset_peak_memory_stats": _NO_TYPE.format("resetPeakMemoryStats"),
    "set_device": _NO_TYPE.format("setDevice"),
}


def printed(name: str, target: Target) -> str:
    """Return the error of a name in torch.cuda; empty where it depends on the arguments.

    torch/cuda/streams.py of the wheels: ``Stream.__new__`` asks for CUDA itself since 2.10.
    """
    if name == "Stream" and target.torch >= Version(2, 10):
        return "RuntimeError: torch.cuda.Stream requires CUDA support"
    return RAISES[name]


#: The functions of torch.cuda that torch.mps has under the same name, without arguments.
ON_MPS = {"empty_cache", "synchronize"}

#: The equivalents on MPS of the names that raise.
INSTEAD: dict[str, str] = {
    "Event": "torch.mps.Event (torch 2.1 and newer)",
    "Stream": "torch.mps.Stream (torch 2.15); before that MPS has one stream",
    "current_stream": "torch.mps.current_stream (torch 2.15); before that MPS has one stream",
    "default_stream": "torch.mps.default_stream (torch 2.15); before that MPS has one stream",
    "current_device": "torch.accelerator.current_device_index() (torch 2.6 and newer)",
    "get_device_properties": "torch.mps.recommended_max_memory() for its memory",
    "get_rng_state": "torch.mps.get_rng_state()",
    "initial_seed": "torch.initial_seed()",
    "mem_get_info": "torch.mps.recommended_max_memory() and torch.mps.driver_allocated_memory()",
    "set_device": "nothing: a Mac has one GPU",
    "device": "nothing: a Mac has one GPU",
    "set_per_process_memory_fraction": "torch.mps.set_per_process_memory_fraction()",
    "synchronize": "torch.mps.synchronize()",
}
