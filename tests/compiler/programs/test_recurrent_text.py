"""The text of recurrent kernels; what it computes is compared in `test_recurrent`."""

from __future__ import annotations

import pytest

from kintune.compiler.programs.recurrent_text import ROWS, SINGLE, STEPS, Tiling, recurrent_text
from kintune.models.recurrence import FORWARD, GRU, LSTM, RNN, Recurrence


@pytest.mark.parametrize("variant", [ROWS, STEPS, SINGLE])
@pytest.mark.parametrize("cell", [LSTM, GRU, RNN])
def test_all_products_of_a_tile_end_with_its_longest_sequence(cell: str, variant: str) -> None:
    text = recurrent_text(Recurrence(cell, FORWARD, 5, 4, 32, lengths=True), variant, Tiling(16, 2, 1))
    inside = -1  # the indentation of the condition that holds, if one does
    products = 0
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if indent <= inside:
            inside = -1
        if line.lstrip().startswith("if s < lengths[") and line.count(" or s < lengths[") == 1:
            inside = indent
        if "T.call_extern(" in line:
            products += 1
            assert inside >= 0, line
    assert products


def test_sequences_of_one_length_have_no_condition() -> None:
    assert "if s <" not in recurrent_text(Recurrence(LSTM, FORWARD, 5, 4, 32), SINGLE, Tiling(16, 2, 1))
