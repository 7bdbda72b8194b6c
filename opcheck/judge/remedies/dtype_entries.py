"""Remedies for dtypes that MPS does not have: a cast where they begin."""

from __future__ import annotations

from opcheck.judge.remedies.remedy import TESTED, Remedy

_ROUNDS = 1e-7
_RANGE = "Numbers outside the new dtype's range do not survive: look at the largest before."

DTYPES = (
    Remedy(
        id="cast_numpy",
        title="Cast a NumPy array to float32 where it becomes a tensor",
        kinds=("float64/numpy", "float64/input", "float64/file", "float64/moved", "float64/before"),
        before="{x} = torch.from_numpy({array})",
        after="{x} = torch.from_numpy({array}).to(torch.float32)",
        tolerance=_ROUNDS,
    ),
    Remedy(
        id="cast_numpy_scalar",
        title="Make a Python number of a NumPy scalar",
        kinds=("float64/numpy_scalar",),
        before="{x} = torch.as_tensor({scalar})",
        after="{x} = torch.tensor(float({scalar}), dtype=torch.float32)",
        tolerance=_ROUNDS,
    ),
    Remedy(
        id="default_dtype",
        title="Ask for float64 where it is needed, and not by default",
        kinds=("float64/default_dtype", "float64/default_dtype_set"),
        before="torch.set_default_dtype(torch.float64)\n{x} = torch.linspace(0, 1, {n})",
        after="torch.set_default_dtype(torch.float32)\n{x} = torch.linspace(0, 1, {n}, dtype=torch.float32)",
        tolerance=_ROUNDS,
    ),
    Remedy(
        id="dtype_given",
        title="Compute a table in float64 on the CPU, and cast it before it is moved",
        kinds=("float64/dtype_given", "float64/cast", "float64/module_cast", "float64/promotion"),
        before="{x} = torch.arange(0.0, 1.0, 0.1, device={device}).double()",
        after="{x} = torch.arange(0.0, 1.0, 0.1, dtype=torch.float64).to(torch.float32).to({device})",
        tolerance=_ROUNDS,
    ),
    Remedy(
        id="scheduler_sigmas",
        title="Compute a schedule in float64 on the CPU, and cast it",
        kinds=("float64/schedule",),
        before="{sigmas} = sigmas_in_float64({n}).to({device})",
        after="{sigmas} = sigmas({n}, {device})",
        module="placing",
        functions=("sigmas",),
        tolerance=_ROUNDS,
    ),
    Remedy(
        id="complex128_to_complex64",
        title="Keep complex numbers in complex64",
        kinds=("complex128/cast", "complex128/dtype_given", "complex128/numpy", "complex/numpy"),
        before="{z} = torch.from_numpy({array})",
        after="{z} = torch.from_numpy({array}).to(torch.complex64)",
        tolerance=_ROUNDS,
        remark="complex64 is used on MPS from torch 2.3 on, with macOS 14 or newer.",
        targets=TESTED[2:],
    ),
    Remedy(
        id="complex32_to_complex64",
        title="Keep complex numbers in complex64, not in half precision",
        kinds=("complex32/cast", "complex32/dtype_given", "complex32/before"),
        before="{z} = {spectrum}.to(torch.complex32)",
        after="{z} = {spectrum}.to(torch.complex64)",
        tolerance=1e-3,
        remark="complex64 is used on MPS from torch 2.3 on, with macOS 14 or newer.",
        targets=TESTED[2:],
    ),
    Remedy(
        id="uint16_to_int32",
        title="Hold unsigned 16 bits in int32",
        kinds=("uint16/numpy", "uint16/dtype_given", "uint16/cast", "uint16/input", "uint16/file"),
        before="{x} = torch.from_numpy({array})",
        after="{x} = torch.from_numpy({array}.astype('int32'))",
    ),
    Remedy(
        id="uint32_to_int64",
        title="Hold unsigned 32 bits in int64",
        kinds=("uint32/numpy", "uint32/dtype_given", "uint32/cast", "uint32/input", "uint32/file"),
        before="{x} = torch.from_numpy({array})",
        after="{x} = torch.from_numpy({array}.astype('int64'))",
    ),
    Remedy(
        id="uint64_to_int64",
        title="Hold unsigned 64 bits in int64",
        kinds=("uint64/numpy", "uint64/dtype_given", "uint64/cast", "uint64/input", "uint64/file"),
        before="{x} = torch.from_numpy({array})",
        after="{x} = torch.from_numpy({array}.astype('int64'))",
        remark=_RANGE,
    ),
    Remedy(
        id="float8_to_float16",
        title="Read float8 weights on the CPU, and give them back their scale in float16",
        kinds=("float8/file", "float8/cast", "float8/dtype_given", "float8/moved"),
        before="{w} = {stored}.to(torch.float32) * {scale}",
        after="{w} = {stored}.to(torch.float16) * {scale}.to(torch.float16)",
        tolerance=2e-3,
        remark=_RANGE
        + " The cast runs on the CPU, before the move: no release has float8 on MPS beyond "
        "scaled products.",
    ),
    Remedy(
        id="int64_sum_on_cpu",
        title="Sum large whole numbers on the CPU",
        kinds=("int64/accumulate", "int64/narrowing"),
        before="{total} = {x}.sum()",
        after="{total} = {x}.cpu().sum().to({x}.device)",
        remark="Some releases sum int64 in int32 below macOS 13.3, or sort by float32 above 2**24.",
    ),
    Remedy(
        id="keep_on_cpu",
        title="Keep a module on the CPU, in float64",
        kinds=("float64/needed", "precision/module", "fallback/module"),
        before="{module} = {module}.double()",
        after="{module} = KeepOnCpu({module})",
        module="placing",
        functions=("KeepOnCpu",),
        tolerance=1e-6,
        gradient=1e-5,
        remark="Its arguments and its result cross between GPU and CPU in each run: `opcheck audit MODEL "
        "--precision` says how many bytes.",
    ),
)
