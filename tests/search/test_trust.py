import pytest

from kintune.search.cost_model import Trust

_RIGHT = ([4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0])
_WRONG = ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0])


def test_a_family_nobody_doubts_gets_full_rounds() -> None:
    assert Trust().size("dense", 16) == 16


def test_rounds_shrink_and_stop_when_predictions_do_not_hold_and_come_back_when_they_do() -> None:
    trust = Trust()
    sizes = []
    for _ in range(4):
        trust.judge("dense", *_WRONG, foreseen=True, improved=False)
        sizes.append(trust.size("dense", 16))
    assert sizes == [8, 4, 0, 0]
    trust.judge("dense", *_RIGHT, foreseen=False, improved=False)
    assert trust.size("dense", 16) == 4
    assert trust.size("conv2d", 16) == 16


@pytest.mark.parametrize("foreseen", [True, False])
def test_a_ranking_that_holds_is_believed_even_without_a_gain(foreseen: bool) -> None:
    trust = Trust()
    trust.judge("dense", *_WRONG, foreseen=True, improved=False)
    trust.judge("dense", *_RIGHT, foreseen=foreseen, improved=False)
    assert trust.size("dense", 16) == 16


def test_full_rounds_without_predictions_say_nothing() -> None:
    trust = Trust()
    trust.judge("dense", [], [], foreseen=False, improved=True)
    assert trust.size("dense", 16) == 16
