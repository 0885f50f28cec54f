"""Attention of PyTorch's exported programs is one kernel, however it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.tools import require

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import tvm

    from tests.support.networks import RunsProgram

torch = require("torch")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]

TOKENS, HEADS, DEPTH = 18, 4, 8
HIDDEN = HEADS * DEPTH


def attend(*arguments: Any, **options: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(*arguments, **options)


def _by_hand(q: Any, k: Any, v: Any, m: Any) -> Any:
    return torch.softmax((q * DEPTH**-0.25) @ (k * DEPTH**-0.25).transpose(-1, -2) + m, -1) @ v


def _filled(q: Any, k: Any, v: Any, m: Any) -> Any:
    return (q @ k.transpose(-1, -2) * DEPTH**-0.5).masked_fill(m > 0.5, float("-inf")).softmax(-1) @ v


def _einsum(q: Any, k: Any, v: Any, _m: Any) -> Any:
    weights = torch.softmax(torch.einsum("bhsd,bhtd->bhst", q, k) / DEPTH**0.5, -1)
    return torch.einsum("bhst,bhtd->bhsd", weights, v)


def _merged(q: Any, k: Any, v: Any, _m: Any) -> Any:
    one, other, value = (part.reshape(-1, TOKENS, DEPTH) for part in (q, k, v))
    scores = torch.baddbmm(torch.zeros(1, 1, 1), one, other.transpose(1, 2), beta=0, alpha=DEPTH**-0.5)
    return torch.bmm(torch.softmax(scores, -1), value).view(-1, HEADS, TOKENS, DEPTH)


def _no_row(q: Any, k: Any, v: Any, m: Any) -> Any:
    """A mask that excludes everything for the first query, of which PyTorch makes zeros."""
    return attend(q, k, v, attn_mask=(m > 0) & (torch.arange(TOKENS) > 0)[:, None])


KINDS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "plain": lambda q, k, v, _m: attend(q, k, v),
    "causal": lambda q, k, v, _m: attend(q, k, v, is_causal=True),
    "added mask": lambda q, k, v, m: attend(q, k, v, attn_mask=m),
    "boolean mask": lambda q, k, v, m: attend(q, k, v, attn_mask=m > 0),
    "rows that see nothing": _no_row,
    "grouped": lambda q, k, v, _m: attend(q, k[:, :2], v[:, :2], enable_gqa=True),
    "repeated": lambda q, k, v, _m: attend(q, k[:, :2].repeat_interleave(2, 1), v[:, :2].repeat_interleave(2, 1)),
    "by hand": _by_hand,
    "masked_fill": _filled,
    "einsum": _einsum,
    "heads in the batch": _merged,
}


class Block(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.project = torch.nn.Linear(HIDDEN, 3 * HIDDEN)

    def forward(self, x: Any, mask: Any) -> Any:
        q, k, v = self.project(x).view(-1, TOKENS, 3, HEADS, DEPTH).permute(2, 0, 3, 1, 4).unbind(0)
        return KINDS[self.kind](q, k, v, mask).transpose(1, 2).reshape(-1, TOKENS, HIDDEN)


@pytest.mark.parametrize("kind", KINDS)
def test_one_kernel_computes_what_pytorch_does(
    kind: str, cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.core.candidate import Candidate, NamedChoice
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    torch.manual_seed(0)
    block, inputs = Block(kind).eval(), (torch.randn(2, TOKENS, HIDDEN), torch.randn(2, 1, TOKENS, TOKENS))
    torch.export.save(torch.export.export(block, inputs), tmp_path / "block.pt2")
    lowered = lower(load(parse_ref(str(tmp_path / "block.pt2"))).module, cpu)
    (workload,) = (each for each in lowered.workloads if each.operator == "attention")
    assert not any("softmax" in each.signature or each.operator == "batch_matmul" for each in lowered.workloads)
    (sketch,) = generate_sketches(workload.digest, workload.module, cpu)
    candidate = Candidate(
        workload.digest, sketch.digest, tuple(axis.values[0] for axis in sketch.axes if isinstance(axis, NamedChoice))
    )
    wanted = block(*inputs).detach().numpy()
    program = assemble(lowered, {workload.digest: (sketch, candidate)}, cpu)
    (found,) = run_program(program, *(each.numpy() for each in inputs))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
