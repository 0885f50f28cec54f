from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.capabilities import CPU, GPU, Capabilities, capabilities_of, kind_named, vector_shape
from kintune.core.measurement_protocol import FLUSHED, DeviceType
from kintune.errors import TargetError

PI = DeviceType('{"kind": "llvm", "num-cores": 4}', "a Pi", ("dotprod", "neon"), 4, f"2-cold-{FLUSHED}")


FOR_LLVM = {"llvm_kernels", "on_host", "plans", "flushes_denormals", "confined"}


def answers(can: Capabilities) -> set[str]:
    """The questions that are answered by yes."""
    return {name for name in Capabilities.__struct_fields__ if getattr(can, name) is True}


def test_a_cpu_runs_plans_of_llvms_kernels() -> None:
    can = capabilities_of('{"kind": "llvm", "num-cores": 4}', ("avx2", "avx512bf16", "avx512f"))
    assert (can.a_device, can.threads, can.lanes, can.registers, can.compiler) == ("a CPU", 4, 16, 32, "")
    assert answers(can) == FOR_LLVM | {"several_shapes", "other_runtimes", "narrow"}
    assert can.precisions == {"fp32", "bf16"}
    assert can.has(("avx2", "avx512f"))
    assert not can.has(("avx2", "amxtile"))


def test_a_gpu_is_run_by_the_virtual_machine_and_needs_a_compiler_of_its_own() -> None:
    can = capabilities_of('{"kind": "cuda", "arch": "sm_90"}', ("sm_90", "avx512bf16"))
    assert (can.a_device, can.compiler, can.precisions) == ("a GPU", "nvcc", {"fp32"})
    assert answers(can) == {"one_architecture"}
    assert not can.has(("sm_90",))  # that is no extension that LLVM's kernels could use


def test_a_board_has_results_like_a_cpu_but_no_process_of_ours_runs_there() -> None:
    can = PI.capabilities
    assert (can.a_device, can.threads, can.lanes, can.registers) == ("a board", 4, 4, 32)
    assert answers(can) == FOR_LLVM | {"remote"}
    assert can.precisions == {"fp32"}


def test_a_target_without_a_kind_is_a_cpus() -> None:
    assert capabilities_of("{}") == capabilities_of('{"kind": "llvm"}') == Capabilities()


@pytest.mark.parametrize("target", ["", "llvm", "[]", "1", '{"kind": "hexagon"}', '{"num-cores": "many"}'])
def test_what_is_no_target_or_of_an_unknown_kind_is_refused_in_one_line(target: str) -> None:
    with pytest.raises(TargetError) as refused:
        capabilities_of(target)
    assert "\n" not in str(refused.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(("kind", "num-cores", "arch")), inner),
)


@given(json_values)
def test_any_json_is_a_target_or_refused(value: Any) -> None:
    with contextlib.suppress(TargetError):
        assert isinstance(capabilities_of(json.dumps(value)), Capabilities)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("cpu", "native"), CPU),
        (("cpu:1", "llvm -mcpu=znver4"), CPU),
        (("cuda:0+cuda:1", "native"), GPU),
        (("cpu", "cuda -arch=sm_90"), GPU),
        (("workstation", "native"), CPU),
    ],
)
def test_the_kind_is_seen_in_what_the_user_calls_a_device(words: tuple[str, ...], kind: str) -> None:
    assert kind_named(*words) == kind


@pytest.mark.parametrize(
    ("extensions", "lanes", "registers"),
    [
        (("sse4_2",), 4, 16),
        (("avx", "sse4_2"), 8, 16),
        (("avx2",), 8, 16),
        (("avx2", "avx512f"), 16, 32),
        (("asimd",), 4, 32),
        (("dotprod", "neon"), 4, 32),
    ],
)
def test_the_extensions_tell_the_vectors_and_how_many_there_are(
    extensions: tuple[str, ...], lanes: int, registers: int
) -> None:
    assert vector_shape(extensions) == (lanes, registers)
