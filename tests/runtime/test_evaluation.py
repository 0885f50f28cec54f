import pytest

from kintune.runtime.evaluation import Evaluation


def test_a_median_comes_with_its_spread() -> None:
    evaluation = Evaluation.of([float(t) for t in range(10, 111)])
    assert (evaluation.median_ms, evaluation.p10_ms, evaluation.p90_ms) == (60.0, 20.0, 100.0)
    assert evaluation.spread == pytest.approx(80 / 60)
    assert evaluation.times_ms[0] == 10.0


def test_one_run_has_no_spread() -> None:
    assert Evaluation.of([2.5]) == Evaluation(2.5, 2.5, 2.5, 0.0, (2.5,))
