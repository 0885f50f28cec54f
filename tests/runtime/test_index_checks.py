import numpy as np
import pytest

from kintune.core.model import IndexCheck
from kintune.errors import InputError
from kintune.runtime.inputs import check_indices

ROWS = IndexCheck("Gather 'rows'", 0, (5,), 1, True)
PLACES = IndexCheck("GatherND 'places'", 1, (3, 7), 0, False)


def test_indices_inside_pass() -> None:
    check_indices([ROWS, PLACES], [np.array([-5, 4, 0]), np.array([[2, 6], [0, 0]])])
    check_indices([ROWS], [np.zeros((0, 3), np.int64)])


@pytest.mark.parametrize(("value", "dtype"), [(5, "int64"), (-6, "int32"), (200, "uint8")])
def test_an_index_of_one_axis(value: int, dtype: str) -> None:
    with pytest.raises(InputError, match=f"Gather 'rows': .* index {value}, .* axis 1 with 5 elements"):
        check_indices([ROWS], [np.array([[0, 1], [value, 2]], dtype)])


@pytest.mark.parametrize(
    ("place", "said"), [((3, 0), "index 3, .* axis 0 with 3"), ((0, -1), "index -1, .* axis 1 with 7")]
)
def test_an_index_of_several_axes(place: tuple[int, int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_indices([PLACES], [np.zeros(1), np.array([[2, 6], place])])
