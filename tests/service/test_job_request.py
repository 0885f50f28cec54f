from __future__ import annotations

import math
from typing import Any

import pytest

from kintune.errors import InputError
from kintune.service.job_request import JobRequest, check, read_constants, read_shape


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"until": "8", "minutes": 10.0, "trials": 5, "priority": 3.0, "seed": 9, "share": True, "search": False},
        {"shapes": {"input": (1, 3, 224, 224)}},
        {"shapes": {"ids": (1, "1..512"), "image": (1, 3, "{32..1280:32}", 64)}},
        {"shapes": {"ids": ((1, 32), (1, 64)), "mask": ((1, 32), (1, 64)), "scale": ()}},
        {"constants": {"sizes": [1, 3, 8, 8], "flag": True, "x": [[1.5], [2]], "most": (1 << 64) - 1}},
        {"webhook": "https://example.org:8443/done?job=1"},
        {"precision": "int8", "max_error": 0.01, "calibrate": (3, 4)},
        {"precision": "auto", "calibrate": (3,)},
        {"precision": "bf16", "search": False},
        {"weights": 8, "max_error": 0.1, "search": False},
    ],
)
def test_what_makes_sense_is_taken(fields: dict[str, Any]) -> None:
    assert check(JobRequest(**fields)) == JobRequest(**fields)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"device": ""}, "device '' is not a name"),
        ({"precision": "int8"}, "upload some and name them in calibrate"),
        ({"calibrate": (1,)}, "calibrate is for a narrower precision"),
        ({"precision": "int8", "calibrate": (1, 1)}, "each once"),
        ({"precision": "int8", "calibrate": (1,), "weights": 8}, "weights and calibrate both quantise the model"),
        ({"weights": 3}, "weights must be 4 or 8, and is 3"),
        ({"weights": 8.0}, "weights must be 4 or 8, and is 8.0"),
        ({"max_error": 0.1}, "give precision bf16, int8 or auto, or weights 4 or 8, as well"),
        ({"device": "../../etc"}, "is not a name of a device type"),
        ({"until": "0"}, "the latency must be more than 0, and is 0"),
        ({"until": "nan"}, "the latency must be more than 0, and is nan"),
        ({"until": "openvino*0.8"}, "a service compares with onnxruntime alone"),
        ({"minutes": 1e9}, "minutes must be more than 0 and at most 10080"),
        ({"trials": -1}, "trials must be more than 0"),
        ({"priority": 0.0}, "priority must be more than 0"),
        ({"priority": 1e9}, "at most 100"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"shapes": {"input": (-1, 3)}}, "extents of 0 or more"),
        ({"shapes": {"": (1,)}}, "extents of 0 or more"),
        ({"shapes": {"ids": (1, "1..5")}, "weights": 4}, "quantised for fixed shapes"),
        ({"shapes": {"ids": (1, "1..5")}, "other_shapes": "onnxruntime"}, "not beside ranges"),
        ({"shapes": {"ids": (1, "5..1")}}, "whole numbers from 0 to 2147483647 or ranges"),
        ({"shapes": {"ids": ((1, "1..5"), (1, 7))}}, "do not go together"),
        ({"shapes": {"x": ((1, -1),)}}, "extents of 0 or more, or up to 16 lists of them"),
        ({"shapes": {"x": (1, (1, 2))}}, "extents of 0 or more"),
        ({"shapes": {"x": ((1,) * 17, (2,) * 17)}}, "up to 16 extents"),
        ({"shapes": {"x": ((1,), (1,))}}, "the shapes x=1 are named twice"),
        ({"shapes": {"x": ((1,), (2,)), "y": ((1,), (2,), (3,))}}, "x has 2 alternative shapes and y has 3"),
        ({"shapes": {"x": tuple((n,) for n in range(17))}}, "x' must have up to 16"),
        ({"shapes": {"x": (1,) * 17}}, "up to 16 extents"),
        ({"constants": {"x": "sizes.npy"}}, "constants: 'x' must be finite numbers"),
        ({"constants": {"x": [1, math.nan]}}, "must be finite numbers"),
        ({"constants": {"x": 10**400}}, "must be finite numbers"),
        ({"constants": {"x": [1, 1 << 64]}}, "must be finite numbers"),
        ({"constants": {"x": [0] * 1025}}, "more than 1024 numbers"),
        ({"constants": {"x": [[1], [2, 3]]}}, "the constant x is not one number, nor lists of equal lengths"),
        ({"webhook": "file:///etc/passwd"}, "webhook must be an http or https address"),
        ({"webhook": "http://"}, "webhook must be"),
        ({"webhook": "http://a:b@example.org/"}, "without a user name"),
        ({"webhook": "http://example.org:99999999/"}, "webhook must be"),
        ({"webhook": "http://example.org/\nHost: x"}, "webhook must be"),
    ],
)
def test_what_does_not_is_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as raised:
        check(JobRequest(**fields))
    assert said in str(raised.value)


def test_people_write_constants_one_a_line() -> None:
    assert read_constants("sizes=1,3\n\n flag=true \n") == {"sizes": [1, 3], "flag": True}
    for text in ("sizes", "table=/etc/secret.npy"):
        with pytest.raises(InputError, match="--constant"):
            read_constants(text)


def test_people_write_shapes_as_on_the_command_line() -> None:
    assert read_shape("x", "1x3X224x224") == (1, 3, 224, 224)
    assert read_shape("x", "1x{32, 64}") == ((1, 32), (1, 64))
    assert read_shape("x", "1x{1..512}") == read_shape("x", "1x1..512") == (1, "{1..512}")
    for text in ("", "1x", "1x{5..1}", "{}", "1;2", "1x{2,3}x{4,5,6}"):
        with pytest.raises(InputError, match=r"the shape of x is written as 1x3x224x224; 1x\{32,64\}"):
            read_shape("x", text)


def test_the_combinations_of_a_job() -> None:
    assert JobRequest().combinations() == ({},)
    wanted = JobRequest(shapes={"ids": ((1, 32), (1, 64)), "image": (1, 3)})
    assert wanted.combinations() == ({"ids": (1, 32), "image": (1, 3)}, {"ids": (1, 64), "image": (1, 3)})


def test_tolerances_and_inputs_to_compare_on_belong_to_the_result() -> None:
    assert check(JobRequest(rtol=0.0, atol=0.5, inputs=(3,))).inputs == (3,)
    for fields, said in (
        ({"rtol": -1.0}, "rtol must be 0 or more"),
        ({"atol": math.inf}, "atol must be 0 or more"),
        ({"inputs": (1, 1)}, "inputs: name up to 256 sets of inputs, each once"),
        ({"inputs": (1,), "random_sets": 4}, "random_sets and given inputs do not go together"),
    ):
        with pytest.raises(InputError, match=said):
            check(JobRequest(**fields))
    for other in (JobRequest(rtol=0.1), JobRequest(atol=0.1), JobRequest(inputs=(3,))):
        assert not JobRequest().has_results_of(other)
