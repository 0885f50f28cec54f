"""What of a network for any extents is a refusal, and what is a fault of the compiler."""

from __future__ import annotations

import pytest

from kintune.errors import BuildError, ModelError
from kintune_lab.fuzz.evaluation import Refused
from kintune_lab.fuzz.open_compiling import _refusing


def _caused(error: Exception, *causes: Exception) -> Exception:
    for one, cause in zip((error, *causes), causes, strict=False):
        one.__cause__ = cause
    return error


UNLIKE = "the network is not the same for all extents: kernels a or b"
ERRORS = {
    "another network": (_caused(ModelError(f"m: {UNLIKE}"), BuildError(UNLIKE)), True),
    "not imported": (_caused(ModelError("m: Foo cannot be imported"), ValueError("foo")), True),
    "not imported later": (_caused(BuildError("the network cannot be lowered for n=2: Foo"), ModelError("Foo")), True),
    "an error later": (_caused(BuildError("the network cannot be lowered for n=2: 0"), KeyError(0)), False),
    "the compiler": (_caused(ModelError("m: Foo cannot be compiled: 0"), KeyError(0)), False),
    "the compiler later": (_caused(ModelError("m: x"), BuildError("the network cannot be compiled: 0")), False),
    "memory": (BuildError("kernel foo writes outside of its memory"), False),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_the_compiler_are_no_refusals(name: str) -> None:
    error, is_refusal = ERRORS[name]
    with pytest.raises(Refused if is_refusal else type(error)), _refusing():
        raise error
