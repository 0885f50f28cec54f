from __future__ import annotations

import pytest

from kintune.service.input_sets import misfit, misfit_in_job, unpacked_bytes
from kintune.service.model_store import Input

INPUTS = (Input("x", (None, 3, 16, 16), "float32", ("batch", "", "", "")), Input("n", (), "int64"))


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ((Input("x", (8, 3, 16, 16), "float32"),), None),
        ((Input("x", (8, 3, 16, 16), "float32"), Input("n", (), "int64")), None),
        ((Input("pixels", (3,), "float32"),), "it has pixels, and the model takes x, n"),
        ((), "it has nothing, and the model takes x, n"),
        ((Input("x", (3, 16, 16), "float32"),), "its x is 3 x 16 x 16, and the model takes batch x 3 x 16 x 16"),
        ((Input("x", (1, 4, 16, 16), "float32"),), "its x is 1 x 4 x 16 x 16, and the model takes batch x 3 x 16 x 16"),
    ],
)
def test_arrays_that_the_model_does_not_take_are_told_at_once(arrays: tuple[Input, ...], problem: str | None) -> None:
    assert misfit(arrays, INPUTS) == problem


def test_strings_are_no_numbers() -> None:
    assert misfit((Input("n", (), "<U5"),), INPUTS) == "its n holds <U5, and the model takes int64"
    assert misfit((Input("s", (2,), "<U5"),), (Input("s", (None,), "string"),)) is None


X8, N = Input("x", (8, 3, 16, 16), "float32"), Input("n", (), "int64")


@pytest.mark.parametrize(
    ("arrays", "shapes", "constants", "problem"),
    [
        ((X8, N), {"x": (8, 3, 16, 16)}, (), None),
        ((X8, N), {}, (), None),
        ((X8,), {}, ("n",), None),
        ((X8,), {}, (), "it lacks n, which the model takes"),
        ((X8, N), {}, ("n",), "it has n, and the model takes x"),
        ((X8, N), {"x": (1, 3, 16, 16)}, (), "its x is 8 x 3 x 16 x 16, and the job is for other shapes"),
    ],
)
def test_a_set_has_all_inputs_in_shapes_of_the_job(
    arrays: tuple[Input, ...], shapes: dict[str, tuple[int, ...]], constants: tuple[str, ...], problem: str | None
) -> None:
    assert misfit_in_job(arrays, INPUTS, [shapes], constants) == problem


def test_the_bytes_of_arrays() -> None:
    assert unpacked_bytes((X8, N, Input("s", (2,), "<U5"))) == 8 * 3 * 16 * 16 * 4 + 8 + 40
