from __future__ import annotations

import pytest

from kintune.service.model_store import Input
from kintune.service.portal.job_form import prefilled, shape_problem, until_problem, webhook_problem

IMAGE = Input("x", (None, 3, 224, 224), "float32", ("batch", "", "", ""))


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (IMAGE, "1x3x224x224"),
        (Input("x", (None, 3, None, None), "float32", ("N", "", "height", "width")), "1x3x224x224"),
        (Input("ids", (None, None), "int64", ("batch_size", "sequence_length")), "1x128"),
        (Input("x", (None, None), "float32", ("batch", "features")), ""),
        (Input("x", (None, 4), "float32"), "1x4"),
        (Input("x", (2, 4), "float32"), "2x4"),
    ],
)
def test_usual_shapes_are_filled_in(value: Input, shape: str) -> None:
    assert prefilled(value) == shape


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("1x3x224x224", None),
        ("{1,8}x3x224x224", None),
        ("", "needs a shape"),
        ("one", "is written as"),
        ("1x3x224", "x has 4 dimensions (batch x 3 x 224 x 224), and this has 3"),
        ("1x4x224x224", "the file fixes a dimension of x to 3"),
    ],
)
def test_a_shape_is_checked_as_it_is_written(said: str, problem: str | None) -> None:
    found = shape_problem(IMAGE, said)
    assert found is None if problem is None else found is not None and problem in found


@pytest.mark.parametrize(
    ("said", "is_fine"), [(None, True), ("", True), ("8", True), ("openvino*0.9", True), ("x", False)]
)
def test_a_target_is_checked_as_it_is_written(said: str | None, is_fine: bool) -> None:
    assert (until_problem(said) is None) is is_fine


@pytest.mark.parametrize(
    ("said", "is_fine"), [(None, True), (" ", True), ("https://a.example/x", True), ("ftp://a", False), ("x\0", False)]
)
def test_a_webhook_is_checked_as_it_is_written(said: str | None, is_fine: bool) -> None:
    assert (webhook_problem(said) is None) is is_fine
