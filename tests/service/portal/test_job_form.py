from __future__ import annotations

import pytest

from kintune.core.constraints import fields_of
from kintune.service.job_request import JobRequest, read_constants
from kintune.service.model_store import Input
from kintune.service.portal import job_form
from kintune.service.portal.job_form import problem_of, shape_problem


def test_the_form_has_a_place_for_every_option() -> None:
    shown = [field.shown for field in fields_of(JobRequest).values()]
    assert {each.part or each.section.part for each in shown} == {*job_form._PARTS}


IMAGE = Input("x", (None, 3, 224, 224), "float32", ("batch", "", "", ""))


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("1x3x224x224", None),
        ("{1,8}x3x224x224", None),
        ("", None),
        ("one", "is written as"),
        ("1x3x224", "x has 4 dimensions (batch x 3 x 224 x 224), and this has 3"),
        ("1x4x224x224", "the file fixes a dimension of x to 3"),
    ],
)
def test_a_shape_is_checked_as_it_is_written(said: str, problem: str | None) -> None:
    found = shape_problem(IMAGE, said)
    assert found is None if problem is None else found is not None and problem in found


@pytest.mark.parametrize(
    ("name", "said", "problem"),
    [
        ("until", None, None),
        ("until", "8", None),
        ("until", "onnxruntime*0.9", None),
        ("until", "openvino*0.9", "'openvino*0.9': a service compares with onnxruntime alone"),
        ("until", "x y", "'x y' cannot be read; write milliseconds"),
        ("minutes", 0, "Must be more than 0"),
        ("minutes", None, None),
        ("max_error", 2.0, "Must be more than 0 and at most 1, and is 2"),
        ("trials", 2.5, "Must be a whole number, and is 2.5"),
        ("webhook", "https://a.example/x", None),
        ("webhook", "ftp://a", "Must be an http or https address"),
        ("webhook", "x\0", "Must be an http or https address"),
    ],
)
def test_a_field_is_checked_as_it_is_written(name: str, said: object, problem: str | None) -> None:
    found = problem_of(name, said)
    assert found is None if problem is None else found is not None and found.startswith(problem)


def test_a_constant_is_checked_as_it_is_written() -> None:
    assert problem_of("constants", "n=3\nsizes=1,3", read_constants) is None
    assert problem_of("constants", "n=x", read_constants) == (
        "n=x: its value is no number, true, false, nor a list of them"
    )
