"""Options about precision that go together, and those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from kintune.core.narrow_options import check_narrow_options
from kintune.errors import InputError


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "fp32"},
        {"precision": "bf16", "max_error": 0.1},
        {"precision": "auto", "calibrated": True},
        {"precision": "int8", "calibrated": True, "scored": True},
        {"precision": "fp32", "weights": 4, "max_error": 0.1},
        {"precision": "bf16", "weights": 8},
    ],
)
def test_what_goes_together(options: dict[str, Any]) -> None:
    check_narrow_options(options.pop("precision"), **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"precision": "int8", "how_to_calibrate": "give --calibrate FILE"},
            "precision int8: inputs are needed to find the ranges of the values; give --calibrate FILE (a model that",
        ),
        ({"precision": "bf16", "calibrated": True, "dashes": "--"}, "give --precision int8 or auto as well"),
        ({"precision": "int8", "calibrated": True, "weights": 4}, "weights and calibrate both quantise the model"),
        ({"precision": "fp32", "weights": 4, "scored": True}, "leave metric out"),
        ({"precision": "fp32", "scored": True}, "metric is for a narrower precision: give precision bf16, int8 or"),
        ({"precision": "fp32", "max_error": 0.1}, "give precision bf16, int8 or auto, or weights 4 or 8, as well"),
    ],
)
def test_what_does_not_is_one_line_that_says_what_to_do(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as raised:
        check_narrow_options(options.pop("precision"), **options)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
