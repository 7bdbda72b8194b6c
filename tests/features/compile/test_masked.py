"""What the names of masked blocks stand for, as the installed Inductor and as 2.11 write them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from opcheck.features.compile.child.inductor_metal import MaskedBlocks, plain
from tests.features.compile.side import side

# torch's own warnings, where its compiler is first imported
pytestmark = pytest.mark.filterwarnings("ignore")

A, B = torch.linspace(-1, 2, 24).reshape(3, 8), torch.linspace(3, 5, 24).reshape(3, 8)


def exchanged(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    x, y = a.clone(), b.clone()
    x[:, :4] = b[:, :4]
    y[:, :4] = a[:, :4]
    return a * b, x, y


def added(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Its blocks have texts of their own."""
    x, y = a.clone(), b.clone()
    x[:, :4] += b[:, :4]
    y[:, :4] -= a[:, :4]
    return a * b, x, y


def notes(program: object) -> list[str]:
    assert callable(program)
    return [note for graph in side(program, A, B) for k in graph.kernels for note in k.notes]


def test_two_values_of_one_block_are_noted_where_the_key_leaves_the_result_out() -> None:
    assert notes(exchanged) == ["tmp7 is tmp1 in a masked block, and replaces tmp0 of another"]


def test_blocks_of_other_texts_are_not() -> None:
    assert notes(added) == []


#: As 2.11 writes it, with the marks of the inner level.
HIDDEN = """\
if (tmp6) {
    auto tmp_scoped_1 = tmp1 < tmp5;
    float tmp_scoped_2;
    if (tmp_scoped_1) {
        auto tmp_scoped__level1_0 = in_ptr0[x0];
        auto tmp_scoped__level1_1 = tmp_scoped__level1_0 >= tmp2;
        auto tmp_scoped__level1_2 = 3;
        tmp_scoped_2 = static_cast<decltype(tmp_scoped_2)>(tmp_scoped__level1_1);
    } else tmp_scoped_2 = 0.0;
}
"""


class Kernel:
    """Stands for Inductor's."""


def test_a_name_that_an_inner_block_declares_anew_is_noted_where_the_outer_one_is_used() -> None:
    blocks = MaskedBlocks()
    (note,) = blocks.notes(Kernel(), HIDDEN)
    assert note == "tmp_scoped_2 of an outer masked block is hidden by that of an inner block"
    shorter = HIDDEN.replace("        auto tmp_scoped__level1_2 = 3;\n", "")
    assert blocks.notes(Kernel(), shorter) == ()
    assert "level" not in plain(HIDDEN)


def test_an_initializer_that_reads_the_outer_name_is_noted() -> None:
    reads = HIDDEN.replace("= 3;", "= tmp_scoped_2;")
    assert MaskedBlocks().notes(Kernel(), reads)


def indexed(step: int) -> object:
    return lambda x, y: torch.cat([x[torch.arange(8) * step], y])


def index_notes(program: object, *args: Tensor) -> list[str]:
    assert callable(program)
    return [note for graph in side(program, *args) for k in graph.kernels for note in k.notes]


def test_an_index_that_ends_threads_outside_of_its_mask_is_noted_with_its_value() -> None:
    (note,) = index_notes(indexed(2), torch.randn(16), torch.randn(24))
    assert note.startswith("a masked index leaves its 16 elements outside of the mask: 2*")
    assert note.endswith(" is 62")


def test_an_index_that_stays_inside_is_not_noted_nor_one_without_a_mask() -> None:
    assert index_notes(indexed(2), torch.randn(64), torch.randn(24)) == []
    assert index_notes(lambda x, i: x[i % 16], torch.randn(16), torch.arange(40)) == []


def test_an_index_of_a_dynamic_size_may_leave_its_tensor() -> None:
    x = torch.randn(16)
    torch._dynamo.mark_dynamic(x, 0)
    (note,) = index_notes(lambda x, y: torch.cat([x[torch.arange(x.shape[0] // 2) * 2], y]), x, torch.randn(24))
    assert note.startswith("a masked index may leave its ")
