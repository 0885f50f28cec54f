from __future__ import annotations

import itertools

import pytest

from kintune.models.recurrence import GRU, LSTM, RNN, Recurrence, parse_recurrence

KINDS = [
    Recurrence(cell, direction, 7, 2, 20, reset_after=after, lengths=lengths, peepholes=peepholes)
    for cell, direction, lengths in itertools.product(
        (LSTM, GRU, RNN), ("forward", "reverse", "bidirectional"), (False, True)
    )
    for after in ((False, True) if cell == GRU else (False,))
    for peepholes in ((False, True) if cell == LSTM else (False,))
] + [
    Recurrence(RNN, "reverse", 7, 2, 20, activations=("relu",)),
    Recurrence(LSTM, "forward", 7, 2, 20, coupled=True, clip=3.5, activations=("hardsigmoid:0.2:0.5", "tanh", "relu")),
    Recurrence(LSTM, "bidirectional", 7, 2, 20, quantised=True, lengths=True),
    Recurrence(GRU, "forward", 7, 2, 20, clip=1e-05, activations=("sigmoid", "elu:-1.5")),
]


@pytest.mark.parametrize("recurrence", KINDS, ids=lambda r: r.text)
def test_the_text_says_all(recurrence: Recurrence) -> None:
    assert parse_recurrence(recurrence.text) == recurrence
    assert recurrence.text.split()[0] == recurrence.cell


@pytest.mark.parametrize(
    "text", ["", "attention heads=8", "lstm", "lstm sideways steps=1 batch=1 hidden=1", KINDS[0].text + " more"]
)
def test_other_texts_are_no_recurrence(text: str) -> None:
    assert parse_recurrence(text) is None


def test_the_shapes_of_an_lstm() -> None:
    recurrence = Recurrence(LSTM, "bidirectional", 7, 2, 20, lengths=True)
    assert dict(recurrence.operands) == {
        "projected": (7, 2, 2, 4, 20), "recurrent": (2, 20, 4, 32), "initial_h": (2, 2, 20), "initial_c": (2, 2, 20),
        "lengths": (2,),
    }  # fmt: skip
    assert dict(recurrence.results) == {"y": (7, 2, 2, 20), "last_h": (2, 2, 20), "last_c": (2, 2, 20)}


def test_a_gru_that_resets_after_the_product_has_a_bias_of_its_own() -> None:
    assert dict(Recurrence(GRU, "forward", 3, 1, 16, reset_after=True).operands)["bias"] == (1, 16)
    assert "bias" not in dict(Recurrence(GRU, "forward", 3, 1, 16).operands)


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize(
    ("direction", "number"), [("forward", 0), ("reverse", 0), ("bidirectional", 0), ("bidirectional", 1)]
)
def test_the_position_in_time(direction: str, number: int, lengths: bool) -> None:
    class T:
        @staticmethod
        def Select(condition: bool, value: int, otherwise: int) -> int:
            return value if condition else otherwise

    recurrence = Recurrence(LSTM, direction, 5, 1, 8, lengths=lengths)
    found = [eval(recurrence.time("s", "d", "0"), {"s": s, "d": number, "lengths": [3], "T": T}) for s in range(5)]
    if direction == "forward" or (direction == "bidirectional" and number == 0):
        assert found == [0, 1, 2, 3, 4]
    else:
        assert found == ([2, 1, 0, 3, 4] if lengths else [4, 3, 2, 1, 0])
