"""The constant follower on hand-assembled code, and its decoder against capstone."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy")

from opcheck.data.wheels.image import Address, LinkedCall, Store, decode, run

BASE = 0x10000


def assemble(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def adrp(rd: int, page: int, pc: int) -> int:
    delta = (page >> 12) - (pc >> 12) & 0x1FFFFF
    return 0x90000000 | (delta & 3) << 29 | (delta >> 2) << 5 | rd


def adr(rd: int, target: int, pc: int) -> int:
    delta = target - pc & 0x1FFFFF
    return 0x10000000 | (delta & 3) << 29 | (delta >> 2) << 5 | rd


def add(rd: int, rn: int, value: int) -> int:
    return 0x91000000 | value << 10 | rn << 5 | rd


def bl(target: int, pc: int) -> int:
    return 0x94000000 | (target - pc >> 2 & 0x3FFFFFF)


def store(rt: int, rn: int, offset: int) -> int:
    return 0xF9000000 | offset // 8 << 10 | rn << 5 | rt


def test_adrp_and_add_make_the_address_that_a_call_sees() -> None:
    code = assemble(adrp(1, 0x55000, BASE), add(1, 1, 0x592), bl(0x20000, BASE + 8))
    assert list(run(code, BASE)) == [Address(0x55592), LinkedCall(0x20000, {1: 0x55592})]


def test_adr_alone_makes_an_address() -> None:
    code = assemble(adr(9, BASE - 8, BASE), bl(BASE - 0x100, BASE + 4))
    assert list(run(code, BASE)) == [Address(BASE - 8), LinkedCall(BASE - 0x100, {9: BASE - 8})]


def test_a_call_forgets_what_the_callee_may_overwrite() -> None:
    code = assemble(adr(1, 0x10100, BASE), adr(21, 0x10200, BASE + 4), bl(0x20000, BASE + 8), bl(0x20000, BASE + 12))
    calls = [event for event in run(code, BASE) if isinstance(event, LinkedCall)]
    assert [call.registers for call in calls] == [{1: 0x10100, 21: 0x10200}, {21: 0x10200}]


def test_a_store_into_a_known_object_gives_value_and_place() -> None:
    code = assemble(adrp(8, 0x60000, BASE), add(8, 8, 0x100), adr(9, 0x10040, BASE + 8), store(9, 8, 0x18))
    assert list(run(code, BASE))[-1] == Store(0x10040, 0x60118)


def test_the_page_and_the_offset_of_the_store_may_come_apart() -> None:
    code = assemble(adrp(8, 0x60000, BASE), adr(9, 0x10040, BASE + 4), store(9, 8, 0x118))
    assert list(run(code, BASE))[-1] == Store(0x10040, 0x60118)


def test_a_pair_on_the_stack_is_two_stores_without_a_place() -> None:
    stp_x0_x10 = 0xA9012BE0  # stp x0, x10, [sp, #0x10]
    code = assemble(adr(0, 0x10010, BASE), adr(10, 0x10020, BASE + 4), stp_x0_x10)
    assert list(run(code, BASE))[-2:] == [Store(0x10010, None), Store(0x10020, None)]


def test_a_register_that_survives_is_stored_again_after_the_call() -> None:
    # mps_fallback stays in x21 over several m.impl calls.
    stp_xzr_x21 = 0xA90757FF  # stp xzr, x21, [sp, #0x70]
    code = assemble(adr(21, 0x10300, BASE), stp_xzr_x21, bl(0x20000, BASE + 8), stp_xzr_x21, bl(0x20000, BASE + 16))
    stores = [event for event in run(code, BASE) if isinstance(event, Store)]
    assert stores == [Store(0x10300, None)] * 2


@pytest.mark.parametrize(
    "word",
    [0xF9400008, 0xB9800108, 0xD2800008, 0xCB080108, 0xA8C12508, 0xD53BD048],
    ids=["ldr", "ldrsw", "movz", "sub", "ldp", "mrs"],
)
def test_what_is_overwritten_is_forgotten(word: int) -> None:
    code = assemble(adr(8, 0x10100, BASE), word, bl(0x20000, BASE + 8))
    call = list(run(code, BASE))[-1]
    assert isinstance(call, LinkedCall)
    assert 8 not in call.registers


@given(st.binary(max_size=200))
def test_any_bytes_are_read_to_the_end(code: bytes) -> None:
    list(run(code, BASE))


def disassembler() -> Any:
    capstone = pytest.importorskip("capstone")
    machine = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    machine.detail = True
    return machine


#: Forms that are followed, and the words that capstone writes for them.
FOLLOWED = {
    "adrp": {"adrp"},
    "adr": {"adr"},
    "add": {"add", "mov"},
    "mov": {"mov"},
    "str": {"str"},
    "str_unscaled": {"stur"},
    "str_post": {"str"},
    "str_pre": {"str"},
    "stp": {"stp"},
    "stp_post": {"stp"},
    "stp_pre": {"stp"},
    "bl": {"bl"},
    "blr": {"blr"},
}


#: Capstone 5 calls an operand written that these only read: the first, or the post-index offset.
CAPSTONE_IS_WRONG = {"cmp", "cmn", "tst", "st1", "st2", "st3", "st4"}


@settings(max_examples=1000)
@given(st.integers(0, 2**32 - 1))
def test_the_decoder_agrees_with_capstone(word: int) -> None:
    machine = disassembler()
    instructions = list(machine.disasm(assemble(word), BASE))
    if not instructions or instructions[0].mnemonic in CAPSTONE_IS_WRONG:
        return
    (instruction,) = instructions
    result = decode(assemble(word))
    form = result[0][2] if result else ""
    if form in FOLLOWED:
        assert instruction.mnemonic in FOLLOWED[form], instruction
        return
    # Whatever else it is: no register that it writes may keep a constant.
    registers = [adr(r, 0x10800 + r, BASE + 4 * i) for i, r in enumerate(range(31))]
    code = assemble(*registers, word, bl(0x20000, BASE + 4 * 32))
    call = [event for event in run(code, BASE) if isinstance(event, LinkedCall)]
    if not call:
        return
    written = {instruction.reg_name(r) for r in instruction.regs_access()[1]}
    for number in call[-1].registers:
        assert not written & {f"x{number}", f"w{number}"}, instruction
