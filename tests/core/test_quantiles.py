from kintune.core.quantiles import quantile


def test_a_quantile_is_linear_between_neighbours() -> None:
    assert [quantile((1.0, 2.0, 4.0), q) for q in (0.0, 0.25, 0.5, 0.75, 1.0)] == [1.0, 1.5, 2.0, 3.0, 4.0]
    assert quantile((7.0,), 0.9) == 7.0
