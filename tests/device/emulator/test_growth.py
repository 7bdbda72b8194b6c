"""Public reports of memory that grows, and of programs that do not grow, as programs: what OC132 finds in each.

The programs follow the reports' own, with fewer iterations; ``REPORTS`` has their addresses, releases and operators.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional

import opcheck
from opcheck.model.records import Report

_STEPS = 12


def _lengths() -> list[int]:
    draw = random.Random(0)  # noqa: S311
    return draw.sample(range(8, 200), _STEPS)


def linear_over_rows() -> None:
    model = nn.Sequential(nn.Linear(32, 32)).to("mps")
    for rows in range(1, _STEPS + 1):
        model(torch.randn(rows, 32).to("mps"))


def linear_over_equal_rows() -> None:
    model = nn.Sequential(nn.Linear(32, 32)).to("mps")
    for _ in range(_STEPS):
        model(torch.randn(64, 32).to("mps"))


def clip_by_numbers() -> None:
    draw = random.Random(0)  # noqa: S311
    for _ in range(_STEPS):
        epsilon = draw.random()
        torch.tensor(0.0).to("mps").clip(1 - epsilon, 1 + epsilon)


def clip_by_tensors() -> None:
    draw = random.Random(0)  # noqa: S311
    for _ in range(_STEPS):
        epsilon = torch.tensor(draw.random()).to("mps")
        torch.tensor(0.0).to("mps").clip(1 - epsilon, 1 + epsilon)


def attention_over_lengths() -> None:
    for length in _lengths():
        query, key, value = (torch.randn(2, 4, length, 16, device="mps") for _ in range(3))
        functional.scaled_dot_product_attention(query, key, value)


def attention_over_growing_lengths() -> None:
    for step in range(_STEPS):
        query, key, value = (torch.randn(2, 4, 32 + 2 * step, 16, device="mps") for _ in range(3))
        functional.scaled_dot_product_attention(query, key, value)


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.project = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = torch.softmax(torch.matmul(x, x.transpose(1, 2)), -1)
        x = self.project(torch.matmul(scores, x))
        return self.attention(x, x, x, need_weights=True)[0]


def _blocks(lengths: list[int]) -> None:
    model = Blocks().to("mps").eval()
    with torch.inference_mode():
        for length in lengths:
            model(torch.randn(2, length, 32, device="mps"))


def blocks_over_lengths() -> None:
    _blocks(_lengths())


def blocks_over_one_length() -> None:
    _blocks([64] * _STEPS)


def _message_passing(sizes: list[tuple[int, int]]) -> None:
    torch.manual_seed(0)
    weight = torch.randn(16, 16, device="mps", requires_grad=True)
    for nodes, edges in sizes:
        x = torch.randn(nodes, 16, device="mps")
        source, target = (torch.randint(0, nodes, (edges,)).to("mps") for _ in range(2))
        messages = torch.mm(x, weight).index_select(0, source)
        out = torch.zeros(nodes, 16, device="mps").index_add(0, target, messages)
        (grad,) = torch.autograd.grad(out.pow(2).mean(), weight)
        with torch.no_grad():
            weight -= 0.01 * grad


def graphs_of_many_sizes() -> None:
    _message_passing([(length, 3 * length) for length in _lengths()])


def batches_of_molecules() -> None:
    draw = random.Random(1)  # noqa: S311
    molecules = [(draw.randint(9, 38), draw.randint(16, 84)) for _ in range(60)]
    batches = [draw.sample(molecules, 8) for _ in range(_STEPS)]
    _message_passing([(sum(n for n, _ in each), sum(e for _, e in each)) for each in batches])


def _fine_tuning(lengths: list[int]) -> None:
    torch.manual_seed(0)
    embed = nn.Embedding(100, 32).to("mps")
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0).to("mps")
    head = nn.Linear(32, 100).to("mps")
    parameters = [*embed.parameters(), *layer.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters)
    for length in lengths:
        tokens = torch.randint(0, 100, (2, length)).to("mps")
        logits = head(layer(embed(tokens)))
        functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


def fine_tuning_over_lengths() -> None:
    _fine_tuning(_lengths())


def fine_tuning_in_buckets() -> None:
    _fine_tuning([-(-length // 64) * 64 for length in (*_lengths(), *_lengths())])


class PublicReport(NamedTuple):
    """A public report and its program; ``operators`` are some of those that the finding must name."""

    program: Callable[[], None]
    source: str
    torch: str
    macos: str
    operators: frozenset[str] = frozenset()


PYTORCH = "https://github.com/pytorch/pytorch/issues/"
GROWING = [
    PublicReport(linear_over_rows, f"{PYTORCH}132596", "2.4", "14.2", frozenset({"aten::linear"})),
    PublicReport(clip_by_numbers, f"{PYTORCH}171679", "2.9", "15.6", frozenset({"aten::clamp"})),
    PublicReport(
        attention_over_lengths,
        f"{PYTORCH}152550",
        "2.7",
        "15",
        frozenset({"aten::_scaled_dot_product_attention_math_for_mps"}),
    ),
    PublicReport(
        attention_over_growing_lengths,
        f"{PYTORCH}152344",
        "2.7",
        "15",
        frozenset({"aten::_scaled_dot_product_attention_math_for_mps"}),
    ),
    PublicReport(blocks_over_lengths, f"{PYTORCH}181213", "2.10", "15", frozenset({"aten::linear"})),
    PublicReport(
        graphs_of_many_sizes,
        "https://github.com/pytorch/pytorch/pull/181485",
        "2.11",
        "15",
        frozenset({"aten::index_select"}),
    ),
    PublicReport(
        batches_of_molecules,
        "https://github.com/pyg-team/pytorch_geometric/pull/10689",
        "2.11",
        "15",
        frozenset({"aten::mm"}),
    ),
    PublicReport(
        fine_tuning_over_lengths,
        "https://github.com/huggingface/transformers/issues/33717",
        "2.4",
        "14",
        frozenset({"aten::linear"}),
    ),
]
CONSTANT = [
    PublicReport(linear_over_equal_rows, f"{PYTORCH}132596", "2.4", "14.2"),
    PublicReport(clip_by_tensors, f"{PYTORCH}171679", "2.9", "15.6"),
    PublicReport(blocks_over_one_length, f"{PYTORCH}181213", "2.10", "15"),
    PublicReport(fine_tuning_in_buckets, "https://github.com/huggingface/transformers/pull/45818", "2.11", "15"),
]


def _run(report: PublicReport) -> Report:
    with opcheck.emulate(torch=report.torch, macos=report.macos) as run:
        report.program()
    return run.report


def _name(report: PublicReport) -> str:
    return report.program.__name__


@pytest.mark.parametrize("public", GROWING, ids=_name)
def test_a_program_that_grows_has_the_finding_with_its_operators(public: PublicReport) -> None:
    report = _run(public)
    (finding,) = [each for each in report.findings if each.rule == "OC132"]
    assert finding.severity == "warning"
    assert report.memory is not None
    named = {op for each in report.memory.growth for op in each.operators}
    assert named >= public.operators, named
    for each in report.memory.growth:
        assert each.kind == "graphs"
        assert each.line.startswith("tests/device/emulator/test_growth.py:") or "torch" in each.line
        assert 0 < each.graphs <= each.seen
        assert each.megabytes > 0
        assert "buckets" in each.cure


@pytest.mark.parametrize("public", CONSTANT, ids=_name)
def test_a_program_that_does_not_grow_has_none(public: PublicReport) -> None:
    report = _run(public)
    assert [each.message for each in report.findings if each.rule == "OC132"] == []


def test_kept_losses_are_told_apart_from_graphs() -> None:
    def program() -> None:
        layer = nn.Linear(8, 8).to("mps")
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        losses = []
        for _ in range(8):
            loss = layer(torch.ones(4, 8, device="mps")).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss)

    report = _run(PublicReport(program, "", "2.13", "15"))
    assert report.memory is not None
    assert {each.kind for each in report.memory.growth} == {"tensors"}
    assert "loss.item()" in report.memory.growth[0].cure


def test_a_release_whose_kernels_need_no_graph_has_no_finding() -> None:
    clip = PublicReport(clip_by_numbers, "", "2.13", "15")
    assert not [each for each in _run(clip).findings if each.rule == "OC132"]
