import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kintune.core.candidate import Candidate, Sketch
from kintune.search.access_patterns import AccessPatterns
from kintune.search.draft.breed import draw
from kintune.search.features.analytic import ANALYTIC
from kintune.search.features.encoding import Population
from kintune.search.features.field import Field, fields_of
from kintune.search.processor import Processor
from kintune.search.training_rows import STORES, WIDTH
from tests.search.features.conftest import a_product, a_sketch, tiled

MACHINE = Processor(16, 32, 2, (32 << 10, 1 << 20, 32 << 20))

VECTORS = tiled((2, 4, 1, 8), (1, 8, 1, 32), (1, 128))
SCALARS = tiled((2, 4, 8, 1), (1, 256, 1, 1), (1, 128))
SPILT = tiled((1, 1, 1, 64), (1, 4, 1, 64), (1, 128))
ONE_CORE = tiled((1, 1, 8, 8), (1, 1, 8, 32), (1, 128))


@pytest.fixture
def field(sketch: Sketch, product: AccessPatterns) -> Field:
    (field,) = fields_of([sketch], product, MACHINE)
    return field


def _estimates(field: Field, *candidates: Candidate) -> list[float]:
    return [float(e) for e in field.estimate(field.features(field.encoding.encode(candidates)))]


def test_a_row_has_the_traits_first_and_nothing_else(field: Field) -> None:
    rows = field.features(field.encoding.encode([VECTORS, SCALARS]))
    assert rows.shape == (2, WIDTH)
    assert rows.dtype == np.float32
    assert rows[:, :ANALYTIC].any()
    assert not rows[:, ANALYTIC:].any()
    assert WIDTH == ANALYTIC + STORES


def test_a_good_register_tile_is_expected_to_be_faster(field: Field) -> None:
    vectors, scalars, spilt, one_core = _estimates(field, VECTORS, SCALARS, SPILT, ONE_CORE)
    assert vectors > 4 * scalars
    assert vectors > spilt
    assert vectors > one_core


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_estimates_are_shares_of_the_peak_and_traits_are_finite(seed: int) -> None:
    field = _make()
    rows = field.features(draw(field.encoding, 64, np.random.default_rng(seed)))
    assert np.isfinite(rows).all()
    estimates = field.estimate(rows)
    assert (estimates > 0).all()
    assert (estimates <= 1).all()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_nobody_is_described_otherwise_in_company(seed: int) -> None:
    field = _make()
    population = draw(field.encoding, 8, np.random.default_rng(seed))
    alone = [field.features(population.take(np.array([i]))) for i in range(len(population))]
    assert np.array_equal(np.concatenate(alone), field.features(population))


def test_traits_tell_decisions_apart(field: Field) -> None:
    rows: NDArray[np.float32] = field.features(
        field.encoding.encode([VECTORS, tiled((2, 4, 1, 8), (1, 8, 1, 32), (1, 128), unroll=0), SCALARS])
    )
    assert len(np.unique(rows, axis=0)) == 3


def test_a_sketch_of_another_structure_has_no_field(sketch: Sketch, product: AccessPatterns) -> None:
    assert fields_of([Sketch("product", "other", b"", ())], product, MACHINE) == ()
    assert fields_of([sketch], None, MACHINE) == ()


def test_where_nothing_can_go_wrong_nothing_need_be_replayed(field: Field) -> None:
    assert field.settled


def _make() -> Field:
    (field,) = fields_of([a_sketch()], a_product(), MACHINE)
    return field


def test_a_limit_of_unrolling_that_makes_no_difference_makes_no_other_program(field: Field) -> None:
    """Eight rows, one step of the reduction: within a limit of 16 as within one of 512, but not within 0."""
    few = [tiled((2, 4, 1, 8), (1, 8, 1, 32), (128, 1), unroll=choice) for choice in range(4)]
    never, *others = field.keys(field.encoding.encode(few))
    assert len({*others}) == 1
    assert never not in others
    many = [tiled((2, 4, 1, 8), (1, 8, 1, 32), (1, 128), unroll=choice) for choice in range(4)]
    assert (
        len({*field.keys(field.encoding.encode(many))}) == 2
    )  # the rows are within all but the first, all steps in none


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_equal_keys_differ_in_nothing_but_a_limit_of_equal_effect(seed: int) -> None:
    field = _make()
    population = draw(field.encoding, 64, np.random.default_rng(seed))
    (limit,) = (column.start for column in field.encoding.columns[-1:])
    for choice in range(4):
        other = Population(population.sketch, population.rows.copy())
        other.rows[:, limit] = choice
        same = np.array([left == right for left, right in zip(field.keys(population), field.keys(other), strict=True)])
        differs = (field.features(population) != field.features(other)).sum(axis=1)
        assert (differs[same] <= 1).all()  # the limit itself is a trait
        assert (differs[~same] > 1).all()
