import math

from hypothesis import given
from hypothesis import strategies as st

from kintune.integrations.stock.task_history import TaskHistory

times = st.floats(0.001, 1e3)


@given(st.floats(0.1, 100), st.lists(times, min_size=1, max_size=12), st.floats(0, 1), st.integers(1, 4))
def test_full_rounds_follow_the_published_rule(weight: float, bests: list[float], alpha: float, window: int) -> None:
    history = TaskHistory(weight)
    for best in bests:
        history.close_round([best, math.inf], 1.0)
    lowest = [min(bests[: i + 1]) for i in range(len(bests))]
    n = len(lowest)
    past = (lowest[n - 1 - window] - lowest[-1]) / window if n >= 1 + window else 0.0
    expected = weight * (alpha * past + (1 - alpha) * lowest[-1] / n)
    assert math.isclose(history.gradient(alpha, window), expected, rel_tol=1e-12, abs_tol=1e-12)


def test_a_task_that_never_ran_promises_nothing() -> None:
    history = TaskHistory(1.0)
    history.close_round([math.inf] * 3, 1.0)
    assert history.gradient(0.2, 3) == -math.inf
    history.close_round([], 1.0)
    assert history.best_ms == math.inf
    history.close_round([2.0], 1.0)
    assert math.isclose(history.gradient(0.2, 1), 0.8 * 2.0 / 3)


def test_a_small_round_lowers_the_expectation_by_its_share() -> None:
    full, small = TaskHistory(1.0), TaskHistory(1.0)
    for history, share in ((full, 1.0), (small, 0.25)):
        history.close_round([4.0], 1.0)
        history.close_round([4.0], share)
    assert small.gradient(0.2, 3) > full.gradient(0.2, 3)
