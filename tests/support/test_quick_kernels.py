"""Tests of the compiler have kernels that LLVM leaves as they are written, unless they say that they need others."""

from __future__ import annotations

import pytest

from tests.support.examples import PROFILE, THOROUGH

pytestmark = pytest.mark.tvm


def written() -> str:
    """What LLVM makes of a kernel."""
    import tvm
    from tvm import te

    source = te.placeholder((5,), "float32", "source")
    doubled = te.create_prim_func([source, te.compute((5,), lambda i: source[i] * 2.0, "doubled")])
    return str(tvm.tirx.build(doubled, target=tvm.target.Target("llvm")).inspect_source("ll"))


@pytest.mark.skipif(PROFILE == THOROUGH, reason="this profile takes the kernels that a user gets")
def test_llvm_optimises_nothing_and_no_argument_is_checked() -> None:
    assert "alloca" in written()
    assert "AssertionError" not in written()
    assert "TypeError" not in written()


@pytest.mark.optimised
def test_a_test_may_have_the_kernels_of_a_user() -> None:
    assert "alloca" not in written().partition("_compute_")[0]
    assert "TypeError" in written()
