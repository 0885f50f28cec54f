"""Attention in bf16 computes what the plain blocks do, up to its rounding, however its queries are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kintune.errors import BuildError
from kintune.search.processor import Processor
from tests.compiler.programs.test_attention import drawn, masks_of, run, spellings, workload
from tests.compiler.programs.test_panel_sum import SAPPHIRE_RAPIDS, kinds
from tests.support.attention import Spelling
from tests.support.bf16 import bits, computed, widened
from tests.support.examples import compiled_examples

pytestmark = pytest.mark.tvm

ERROR = 1e-2
"""The norm of the difference over that of the result, at most."""

LARGE = {
    "batch": 1, "heads": 2, "groups": 1, "rows": 97, "columns": 97, "depth": 24, "width": 40, "layout": "heads",
    "scaling": "after", "mask": "none", "low": -1e9, "softmax": "operator", "twist": "", "guarded": False,
    "result": "heads",
}  # fmt: skip


def spelling(**changes: Any) -> Spelling:
    return Spelling(**{**LARGE, **changes}).settled()


def agree(written: Spelling, target: Any, choose: Any, seed: int = 3) -> int:
    """Compare each kind that this CPU has with the plain blocks; returns how many there were."""
    from kintune.compiler.programs.narrow_attention import NarrowAttention

    program, module = NarrowAttention(), workload(written, target)
    compared = kinds()
    if not compared or not program.variants(module, target):
        return 0
    operands = drawn(module, written.low, seed)
    wanted = run(module, target, operands)
    finite = np.isfinite(wanted)
    for kind in compared:
        decisions = tuple(axis.values[choose(axis)] for axis in program.axes(module, kind))
        found = run(program.write(module, kind, decisions), target, operands)
        assert np.array_equal(np.isfinite(found), finite), (written, kind, decisions)
        error = np.linalg.norm((found - wanted)[finite]) / np.linalg.norm(wanted[finite])
        assert error <= ERROR, (written, kind, decisions, error)
    return len(compared)


MANY_ROWS = spellings((16, 17, 31, 32, 33, 50, 97), (16, 31, 33, 64, 67, 129), (8, 16, 24, 33), (1, 7, 16, 33, 64))


@compiled_examples(6, derandomize=True, phases=[Phase.generate], deadline=None)
@given(written=MANY_ROWS, data=st.data())
def test_whatever_is_drawn_computes_the_same(written: Spelling, data: st.DataObject, here: Any) -> None:
    agree(written, here, lambda axis: data.draw(st.integers(0, len(axis.values) - 1)))


@pytest.mark.parametrize("blocks", range(4))
@pytest.mark.parametrize("rows", [97, pytest.param(40, marks=pytest.mark.slow)])
def test_each_number_of_blocks(rows: int, blocks: int, here: Any) -> None:
    agree(spelling(rows=rows), here, lambda axis: min(blocks, len(axis.values) - 1))


MASKS = ("columns", "full", "boolean", "causal")


@pytest.mark.parametrize(
    ("mask", "low"),
    [
        *((mask, -1e9) for mask in MASKS),
        ("boolean", -np.inf),
        *(pytest.param(mask, -np.inf, marks=pytest.mark.slow) for mask in MASKS if mask != "boolean"),
    ],
)
def test_masks(mask: str, low: float, here: Any) -> None:
    agree(spelling(mask=mask, low=low, guarded=low == -np.inf), here, lambda _axis: 0)


@pytest.mark.parametrize(("low", "guarded"), [(-3.4028234663852886e38, False), (-np.inf, False), (-np.inf, True)])
def test_rows_that_see_nothing_are_as_in_a_plain_softmax(low: float, guarded: bool, here: Any) -> None:
    """What fills up the last panel of keys counts for nothing, however low all scores are."""
    from kintune.compiler.programs.narrow_attention import NarrowAttention

    rows = 33
    module = workload(spelling(rows=rows, columns=40, mask="full", low=low, guarded=guarded), here)
    operands = drawn(module, low)
    (position,) = masks_of(module)
    mask = operands[position]
    mask[(..., slice(0, 1)) if mask.shape[-1] == rows else (..., slice(0, 1), slice(None))] = low
    wanted = run(module, here, operands)[:, :, 0]
    assert np.isnan(wanted).all() == (low == -np.inf and not guarded)
    for kind in kinds():
        found = run(NarrowAttention().write(module, kind, ((1,),)), here, operands)[:, :, 0]
        np.testing.assert_allclose(found, wanted, rtol=ERROR, atol=ERROR, err_msg=kind)


def test_what_does_not_suit_is_left_to_fp32(here: Any) -> None:
    from kintune.compiler.programs.narrow_attention import NarrowAttention

    target = cpu()
    program = NarrowAttention()
    assert program.variants(workload(spelling(), target), target) == ("amx",)
    for changes in ({"rows": 9}, {"columns": 8}, {"depth": 3}):
        assert program.variants(workload(spelling(**changes), target), target) == ()


def test_it_is_offered_for_its_precision_alone(here: Any) -> None:
    from kintune.compiler.programs.registry import applicable

    target = cpu()
    module = workload(spelling(), target)
    names = [[name for _, _, name in applicable(module, target, precisions)] for precisions in (frozenset(), {"bf16"})]
    assert not any(name.startswith("narrow") for name in names[0])
    assert "narrow_attention.3:amx" in names[1]


def test_the_rule_leaves_heads_whole_where_they_fill_the_threads(here: Any) -> None:
    from kintune.compiler.programs.narrow_attention import NarrowAttention

    program, module = NarrowAttention(), workload(spelling(heads=8, rows=197, columns=197), cpu())
    assert program.rule(module, "amx", Processor(lanes=16, threads=2))[0] == ((1,),)
    alone = workload(spelling(heads=1, rows=197, columns=197), cpu())
    assert program.rule(alone, "amx", Processor(lanes=16, threads=2))[0] == ((2,),)


def test_wrong_decisions_are_refused(here: Any) -> None:
    from kintune.compiler.programs.narrow_attention import NarrowAttention

    program, module = NarrowAttention(), workload(spelling(), here)
    with pytest.raises(BuildError, match=r"no blocks = 99"):
        program.write(module, "amx", ((99,),))
    with pytest.raises(BuildError, match="no variant"):
        program.write(module, "tiles", ((1,),))


def cpu() -> Any:
    import tvm

    return tvm.target.Target(SAPPHIRE_RAPIDS)


@pytest.mark.parametrize("rows", [33, pytest.param(97, marks=pytest.mark.slow)])
def test_what_is_kept_in_bf16_computes_the_same(rows: int, here: Any) -> None:
    from kintune.compiler.programs.narrow_attention import NarrowAttention

    module = workload(spelling(rows=rows, mask="columns", layout="tokens", result="tokens"), here)
    program, result = NarrowAttention(), len(module["main"].params) - 1
    able = program.keepable(module)
    rounded = program.keepable(module, rounded=True)
    assert rounded == able - {result}
    for kind in kinds():
        wide = computed(program.write(module, kind, ((1,),)), here, frozenset(), rounded)
        for kept in (rounded, able, frozenset({result})):
            narrow = computed(program.write(module, kind, ((1,),), kept), here, kept, rounded)
            assert np.array_equal(narrow, widened(bits(wide)) if result in kept else wide), (kind, kept)
