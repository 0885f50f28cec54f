from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kintune.core.execution_plan import ExecutionPlan, KernelCall, PlannedTensor
from kintune.core.kernel_bounds import KernelBounds
from kintune.core.model import Tensor
from kintune.runtime.executable import CompiledPlan, Executable
from tests.support.targets import native_target
from tests.support.toy_model import manifest

pytestmark = pytest.mark.tvm

COPY = """
@T.prim_func(private=True, s_tir=True)
def main(a: T.Buffer(({size},), "float32"), b: T.Buffer(({size},), "float32")):
    for i in range({size}):
        b[{target}] = a[{source}]
"""


def executable_of(size: int, source: str = "i", target: str = "i", unproven: bool = True) -> Executable:
    """A network of one kernel, which copies its input to its output by these indices."""
    import tvm
    from tvm.script import tirx as T

    from kintune.compiler.graph.kernel_library import build_kernels

    text = COPY.format(size=size, source=source, target=target)
    function = tvm.script.from_source(text, {"T": T}).with_attr("global_symbol", "copies")
    module = tvm.IRModule({"copies": function})
    library = build_kernels(module, native_target()).content
    plan = ExecutionPlan(
        tensors=(PlannedTensor("input", 0, "float32", (size,)), PlannedTensor("output", 0, "float32", (size,))),
        operations=(KernelCall("copies", (0, 1)),),
        input_tensors=(0,),
        output_tensors=(1,),
        inputs=(Tensor("x", (size,), "float32"),),
        outputs=(Tensor("y", (size,), "float32"),),
        arena_bytes=0,
    )
    bounds = KernelBounds(1, {"copies": ("x",)} if unproven else {})
    return Executable.create_from_plans([CompiledPlan(plan, library, [], bounds=bounds)], manifest(plan))


@pytest.mark.parametrize(
    ("source", "target", "wrong"),
    [
        ("i", "i", ""),
        ("i + 1", "i", "copies accesses memory behind its buffer 0"),
        ("i", "i + 1", "copies accesses memory behind its buffer 1"),
        ("i - 1", "i", "copies accesses memory before its buffer 0"),
        ("i", "i - 1", "copies writes beside its buffer 1"),
    ],
)
def test_one_element_too_far_is_found(source: str, target: str, wrong: str) -> None:
    from kintune.runtime.guarded_run import try_kernels

    with executable_of(16, source, target) as executable:
        assert try_kernels(executable, 0, ["copies"]) == wrong


def test_what_is_written_between_an_argument_and_the_page_is_found() -> None:
    from kintune.runtime.guarded_run import try_kernels

    with executable_of(17, target="i + 1") as executable:
        assert try_kernels(executable, 0, ["copies"]) == "copies writes beside its buffer 1"


def test_a_kernel_that_stays_inside_is_noted_and_one_that_does_not_is_refused() -> None:
    from kintune.compiler.graph.executable import _tried
    from kintune.errors import BuildError

    with _tried(executable_of(16), [{"copies": "digest"}]) as good:
        assert good.manifest.bounds == (KernelBounds(1, {"copies": ("x",)}, ("copies",)),)
        said = KernelBounds.described(good.manifest.bounds)
        assert said == "0 of 1 kernels proven in bounds, 1 tried between guard pages"
        values = np.arange(16, dtype=np.float32)
        np.testing.assert_array_equal(good.run({"x": values})["y"], values)
    with pytest.raises(BuildError, match="copies accesses memory behind its buffer 0") as refused:
        _tried(executable_of(16, source="i + 1"), [{"copies": "digest"}])
    assert refused.value.at_fault == {"digest"}


def test_what_is_proven_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.compiler.graph import executable as building

    def fail(*_arguments: Any) -> str:
        raise AssertionError

    monkeypatch.setattr(building, "try_kernels", fail)
    made = executable_of(16, unproven=False)
    assert building._tried(made, [{}]) is made
