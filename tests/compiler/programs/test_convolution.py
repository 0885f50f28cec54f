"""Which convolutions are recognised, and which padding is absorbed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.convolutions import Case, workload

pytestmark = pytest.mark.tvm


def padded(value: float, read_twice: bool) -> Any:
    import tvm
    from tvm import te, topi

    data = te.placeholder((1, 8, 8, 16), name="data")
    weight = te.placeholder((3, 3, 16, 16), name="weight")
    around = topi.nn.pad(data, (0, 1, 1, 0), (0, 1, 1, 0), pad_value=value, name="pad_temp")
    found = topi.nn.conv2d_nhwc(around, weight, 1, 0, 1)
    if read_twice:
        found = topi.add(found, topi.strided_slice(around, (0, 2, 2, 0), (1, 10, 10, 16)))
    return tvm.IRModule({"main": te.create_prim_func([data, weight, found]).with_attr("layout_free_buffers", [1])})


@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 0, 0, 0), (3, 0, 1, 2), (0, 2, 0, 0)])
def test_padding_is_absorbed(pads: tuple[int, int, int, int]) -> None:
    from kintune.compiler.programs.winograd import find_convolution

    found = find_convolution(workload(Case(pads=pads, images=2, filters=32, after=("bias",))))
    assert found is not None
    assert (found.rows.before, found.columns.before) == pads[:2]
    assert tuple(int(extent) for extent in found.data.shape) == (2, 8, 8, 16)
    assert (found.images, *found.extents[1:]) == (2, 6 + pads[0] + pads[2], 6 + pads[1] + pads[3])
    assert (found.channels, found.position) == (16, 1)


@pytest.mark.parametrize(("value", "read_twice"), [(1.0, False), (0.0, True)])
def test_other_padding_is_kept(value: float, read_twice: bool) -> None:
    from kintune.compiler.programs.winograd import find_convolution

    found = find_convolution(padded(value, read_twice))
    assert found is None


def test_what_a_schedule_has_changed_is_not_recognised() -> None:
    import tvm

    from kintune.compiler.programs.winograd import find_convolution

    schedule = tvm.s_tir.Schedule(workload(Case()))
    loops = schedule.get_loops(schedule.get_sblock("conv2d_nhwc", func_name="main"))
    schedule.parallel(loops[1])
    assert find_convolution(schedule.mod) is None
