"""What composites call, read from a made library and, where it is there, from a real wheel."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")
pytest.importorskip("lief")

from scripts.wheels.bodies import bodies
from tests.data.test_wheel_library import bl, implement, made_library

BLOCK = "__ZN2at12_GLOBAL__N_151TORCH_LIBRARY_IMPL_init_aten_CompositeImplicitAutograd_3ERN5torch7LibraryE"
CONDITIONAL, RETURN = 0x54000040, 0xD65F03C0  # b.eq +8; ret
ENTRY, BODY, HELPER, ADD, MUL, DEEP, ITERATOR = 0x400, 0x420, 0x440, 0x480, 0x4A0, 0x4C0, 0x4E0


def branch(target: int, pc: int) -> int:
    return 0x14000000 | (target - pc >> 2 & 0x3FFFFFF)


def test_a_body_calls_what_it_branches_to_also_through_its_helpers() -> None:
    library = made_library(
        {
            BLOCK: (0x200, implement(ENTRY, 0x1000, 0x200)),
            "__ZN3c104impl28wrap_kernel_functor_unboxed_I4madeE4callEv": (ENTRY, [branch(BODY, ENTRY)]),
            "__ZN2at6native4madeERKNS_6TensorE": (
                BODY,
                [bl(HELPER, BODY), CONDITIONAL, bl(ADD, BODY + 8), branch(BODY + 4, BODY + 12)],
            ),
            "__ZN2at6nativeL4helpERKNS_6TensorE": (HELPER, [bl(ITERATOR, HELPER), branch(MUL, HELPER + 4)]),
            "__ZN2at4_ops10add_Tensor4callERKNS_6TensorES4_": (ADD, [bl(DEEP, ADD), RETURN]),
            "__ZN2at4_ops3mul10redispatchERKNS_6TensorE": (MUL, [RETURN]),
            "__ZN2at4_ops4deep4callERKNS_6TensorE": (DEEP, [RETURN]),
            "__ZN2at18TensorIteratorBase5buildEv": (ITERATOR, [bl(DEEP, ITERATOR), RETURN]),
        }
    )
    result = bodies(library, ["aten::add.Tensor", "aten::mul"])
    # Neither what an operator calls itself, nor what the loop's machinery does.
    assert result == {"aten::made.out": ("aten::add.Tensor", "aten::mul")}


def test_other_keys_are_no_composites() -> None:
    block = BLOCK.replace("51TORCH", "29TORCH").replace("CompositeImplicitAutograd", "CPU")
    assert bodies(made_library({block: (0x200, implement(ENTRY, 0x1000, 0x200))}), ()) == {}
