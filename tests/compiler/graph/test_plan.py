from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from kintune.core.candidate import Candidate, Sketch
from kintune.core.execution_plan import Branch, Copy, ExecutionPlan, KernelCall
from kintune.core.model import Tensor
from kintune.errors import BuildError
from tests.compiler.graph.test_arena import live_bytes

if TYPE_CHECKING:
    import tvm

    from kintune.compiler.graph.assemble import PlannedProgram
    from kintune.models.model import ImportedModel
    from tests.support.networks import Small

pytestmark = pytest.mark.tvm

Arrays = list[NDArray[Any]]


def _plan_and_run(model: ImportedModel, feeds: Mapping[str, NDArray[Any]], target: tvm.target.Target) -> ExecutionPlan:
    """The plan of a model, which computes the same to the bit as the VM does."""
    from kintune.compiler.graph.assemble import assemble, assemble_plan
    from kintune.compiler.graph.lower import lower
    from tests.support.plan_interpreter import run_plan

    lowered = lower(model.module, target)
    planned = assemble_plan(lowered, {}, target, inputs=model.inputs, outputs=model.outputs, checks=model.checks)
    inputs = [feeds[tensor.name] for tensor in model.inputs]
    found, wanted = run_plan(planned, *inputs), _by_vm(assemble(lowered, {}, target), inputs)
    wanted = [*wanted[: len(model.outputs)], *(wanted[len(model.outputs) + check.result] for check in model.checks)]
    _assert_same(found, wanted)
    return planned.plan


def _by_vm(program: Any, inputs: Sequence[NDArray[Any]]) -> Arrays:
    import tvm
    from tvm import relax

    from kintune.runtime.tensors import array_of, leaves_of

    main = relax.VirtualMachine(program.executable, tvm.cpu())["main"]
    return list(map(array_of, leaves_of(main(*map(tvm.runtime.tensor, inputs), *program.weights))))


def _assert_same(found: Arrays, wanted: Arrays) -> None:
    assert [(array.shape, array.dtype) for array in found] == [(array.shape, array.dtype) for array in wanted]
    assert all(np.array_equal(one, other, equal_nan=True) for one, other in zip(found, wanted, strict=True))


def _imported(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, NDArray[Any]],
    outputs: Sequence[str],
    constants: Mapping[str, Any] = {},
) -> ImportedModel:
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "graph", ports, [], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    inferred = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.value_info}
    known = {**inferred, **{port.name: port for port in ports}}
    model.graph.output.extend(known[name] for name in outputs)
    path = folder / "model.onnx"
    onnx.save(model, path)
    return load(parse_ref(str(path)))


def _normal(*shape: int) -> NDArray[Any]:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "name", ["bert_base?layers=1&sequence=16", pytest.param("mobilenet_v2?image=64", marks=pytest.mark.slow)]
)
def test_networks_of_the_zoo_compute_what_the_vm_does(
    name: str, cpu: tvm.target.Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kintune.compiler.graph import plan as planner
    from kintune.compiler.graph.arena import Arena, Buffer, place_buffers
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from kintune.runtime.inputs import draw_inputs

    placed: list[tuple[Sequence[Buffer], Arena]] = []

    def place(buffers: Sequence[Buffer]) -> Arena:
        placed.append((buffers, place_buffers(buffers)))
        return placed[-1][1]

    monkeypatch.setattr(planner, "place_buffers", place)
    model = load(parse_ref(f"zoo:{name}"))
    plan = _plan_and_run(model, draw_inputs(model.inputs, 0), cpu)
    ((buffers, arena),) = placed
    assert arena.nbytes == plan.arena_bytes <= 1.2 * live_bytes(buffers)
    assert not any(isinstance(operation, Copy) for operation in plan.operations)


def test_tuned_programs_and_kernels_that_are_compiled_already(small_conv: Small) -> None:
    from kintune.compiler.build import build_candidate
    from kintune.compiler.graph.assemble import assemble, assemble_plan
    from kintune.compiler.space.replay import save_workload
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.core.stage_requests import kernel_name
    from kintune.search.processor import Processor
    from kintune.search.rules import rule_candidates
    from tests.support.plan_interpreter import run_plan

    model, lowered, target = small_conv.model, small_conv.lowered, small_conv.target
    chosen: dict[str, tuple[Sketch, Candidate]] = {}
    kernels = {}
    for workload in lowered.workloads:
        sketches = generate_sketches(workload.digest, workload.module, target)
        for candidate in rule_candidates(sketches, Processor(8, 16), 1):
            sketch = next(each for each in sketches if each.digest == candidate.sketch)
            chosen[workload.digest] = sketch, candidate
            built = build_candidate(target, save_workload(workload.module), sketch, candidate)
            kernels[built.candidate] = built
    wanted = _by_vm(assemble(lowered, chosen, target), [_normal(*model.inputs[0].shape)])
    for linked in ({}, kernels):
        program = assemble_plan(lowered, chosen, target, linked, inputs=model.inputs, outputs=model.outputs)
        assert [tuple(w.shape) for w in program.weights] != [tuple(w.shape) for w in lowered.weights]
        calls = {operation.kernel for operation in program.plan.operations if isinstance(operation, KernelCall)}
        assert {call for call in calls if call.startswith("kernel_")} <= {kernel_name(digest) for digest in linked}
        assert any(call.startswith("kernel_") for call in calls) == bool(linked)
        _assert_same(run_plan(program, _normal(*model.inputs[0].shape)), wanted)


def test_an_onnx_if(tmp_path: Path, cpu: tvm.target.Target) -> None:
    def branch(name: str, operator: str) -> Any:
        result = helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3))
        return helper.make_graph([helper.make_node(operator, ["x", "w"], [name])], name, [], [result])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("a", "Add"), else_branch=branch("b", "Mul"))
    for condition in (False, True):
        feeds = {"c": np.array(condition), "x": _normal(2, 3)}
        _plan_and_run(_imported(tmp_path, [node], feeds, ["y"], {"w": _normal(3)}), feeds, cpu)


def test_the_largest_elements_and_their_places(tmp_path: Path, cpu: tvm.target.Target) -> None:
    feeds = {"x": _normal(4, 9)}
    nodes = [helper.make_node("TopK", ["x", "k"], ["values", "places"], axis=1)]
    plan = _plan_and_run(_imported(tmp_path, nodes, feeds, ["places", "values"], {"k": np.array([3])}), feeds, cpu)
    assert [tensor.name for tensor in plan.outputs] == ["places", "values"]
    assert [type(operation) for operation in plan.operations] == [KernelCall]


def test_an_output_that_no_kernel_writes_is_copied(tmp_path: Path, cpu: tvm.target.Target) -> None:
    """An input, a view of one, and a constant."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["flat"]),
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["w"], ["weight"]),
    ]
    feeds, constants = {"x": _normal(2, 3)}, {"shape": np.array([6]), "w": _normal(5)}
    plan = _plan_and_run(_imported(tmp_path, nodes, feeds, ["flat", "same", "weight"], constants), feeds, cpu)
    assert [type(operation) for operation in plan.operations] == [Copy, Copy, Copy]
    assert plan.arena_bytes == 0


def test_a_kernel_writes_into_the_first_output_that_it_is(tmp_path: Path, cpu: tvm.target.Target) -> None:
    """The other ones, the same tensor and a view of it, are copies."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["y"]),
        helper.make_node("Identity", ["y"], ["again"]),
        helper.make_node("Reshape", ["y", "shape"], ["flat"]),
    ]
    feeds, constants = {"x": _normal(2, 3)}, {"shape": np.array([6])}
    plan = _plan_and_run(_imported(tmp_path, nodes, feeds, ["y", "again", "flat"], constants), feeds, cpu)
    assert [type(operation) for operation in plan.operations][-2:] == [Copy, Copy]
    assert plan.arena_bytes == 0


def test_small_kernels_run_on_the_calling_thread(tmp_path: Path, cpu: tvm.target.Target) -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"]), helper.make_node("Softmax", ["a"], ["b"])]
    feeds = {"x": _normal(8, 256), "a": _normal(8, 257)}
    plan = _plan_and_run(_imported(tmp_path, nodes, feeds, ["y", "b"], {}), feeds, cpu)
    small, large = plan.operations
    assert isinstance(small, KernelCall)
    assert isinstance(large, KernelCall)
    assert (small.threads, large.threads) == (1, 0)


def test_indices_that_are_checked_are_outputs_of_their_own(tmp_path: Path, cpu: tvm.target.Target) -> None:
    """Two nodes that read by the same index have a check and an output each."""
    nodes = [
        helper.make_node("Mul", ["i", "two"], ["place"]),
        helper.make_node("Gather", ["x", "place"], ["a"]),
        helper.make_node("Gather", ["w", "place"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    feeds = {"x": _normal(5), "i": np.array([1, 2, 0])}
    model = _imported(tmp_path, nodes, feeds, ["y"], {"w": _normal(7), "two": np.array(2)})
    assert [check.result for check in model.checks] == [0, 0]
    plan = _plan_and_run(model, feeds, cpu)
    assert [check.result for check in plan.checks] == [0, 1]
    assert len(plan.output_tensors) == 3


def test_tensors_without_elements(tmp_path: Path, cpu: tvm.target.Target) -> None:
    feeds = {"x": np.zeros((0, 3), np.float32), "z": _normal(2, 3)}
    nodes = [helper.make_node("Add", ["x", "w"], ["y"]), helper.make_node("Concat", ["x", "z"], ["all"], axis=0)]
    _plan_and_run(_imported(tmp_path, nodes, feeds, ["y", "all"], {"w": _normal(3)}), feeds, cpu)


def _planned(
    main: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor], cpu: tvm.target.Target
) -> tuple[PlannedProgram, Any]:
    """A Relax function planned, and compiled for the VM."""
    import tvm
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble, assemble_plan
    from kintune.compiler.graph.lower import Lowered

    module = relax.transform.LegalizeOps()(tvm.IRModule({"main": main}))
    lowered = Lowered(module, (), (), {})
    return assemble_plan(lowered, {}, cpu, inputs=inputs, outputs=outputs), assemble(lowered, {}, cpu)


def test_branches_leave_their_results_in_one_place(cpu: tvm.target.Target) -> None:
    """A branch within a branch, one that computes nothing, and one that returns what was there before."""
    from tvm.script import relax as R

    from tests.support.plan_interpreter import PlanInterpreter

    @R.function  # type: ignore[misc]
    def main(  # type: ignore[no-untyped-def]
        c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor((2, 3), "float32")
    ):
        y: R.Tensor((2, 3), "float32") = R.add(x, x)
        if c:
            a: R.Tensor((2, 3), "float32") = R.multiply(y, y)
            if d:
                e: R.Tensor((2, 3), "float32") = R.exp(a)
                z1: R.Tensor((2, 3), "float32") = R.add(e, a)
            else:
                z1: R.Tensor((2, 3), "float32") = y
            z: R.Tensor((2, 3), "float32") = R.subtract(z1, y)
        else:
            z: R.Tensor((2, 3), "float32") = R.multiply(x, y)
        return z, y

    inputs = Tensor("c", (), "bool"), Tensor("d", (), "bool"), Tensor("x", (2, 3), "float32")
    outputs = Tensor("z", (2, 3), "float32"), Tensor("y", (2, 3), "float32")
    planned, compiled = _planned(main, inputs, outputs, cpu)
    operations = planned.plan.operations
    assert sum(isinstance(operation, Copy) for operation in operations) == 1
    assert sum(isinstance(operation, Branch) for operation in operations) == 2
    interpreter = PlanInterpreter(planned)
    paths = set()
    for feeds in ([np.array(bool(n & 1)), np.array(bool(n & 2)), _normal(2, 3)] for n in range(4)):
        _assert_same(interpreter.run(*feeds), _by_vm(compiled, feeds))
        paths.add(tuple(interpreter.executed))
    assert len(paths) == 3


def test_a_branch_without_operations_needs_no_jump(cpu: tvm.target.Target) -> None:
    """Both outputs of the branches are the same tensor in one of them."""
    from tvm.script import relax as R

    from tests.support.plan_interpreter import run_plan

    @R.function  # type: ignore[misc]
    def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):  # type: ignore[no-untyped-def]
        if c:
            y: R.Tensor((4,), "float32") = R.exp(x)
            t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")) = (y, y)
        else:
            t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")) = (x, x)
        return t

    inputs = Tensor("c", (), "bool"), Tensor("x", (4,), "float32")
    outputs = Tensor("y", (4,), "float32"), Tensor("z", (4,), "float32")
    planned, compiled = _planned(main, inputs, outputs, cpu)
    for condition in (False, True):
        feeds = [np.array(condition), _normal(4)]
        _assert_same(run_plan(planned, *feeds), _by_vm(compiled, feeds))


def test_a_function_of_another_library_cannot_be_planned(cpu: tvm.target.Target) -> None:
    from tvm.script import relax as R

    @R.function(pure=False)  # type: ignore[misc]
    def main(x: R.Tensor((4,), "float32")):  # type: ignore[no-untyped-def]
        return R.call_packed("my.function", x, ty_args=R.Tensor((4,), "float32"))

    port = (Tensor("x", (4,), "float32"),)
    with pytest.raises(BuildError, match=r"^cannot be planned: my\.function$"):
        _planned(main, port, port, cpu)


def test_a_type_that_the_runtime_lacks_cannot_be_planned(cpu: tvm.target.Target) -> None:
    from tvm.script import relax as R

    @R.function  # type: ignore[misc]
    def main(x: R.Tensor((4,), "float8_e4m3fn")):  # type: ignore[no-untyped-def]
        return R.reshape(x, R.shape([4]))

    port = (Tensor("x", (4,), "float8_e4m3fn"),)
    with pytest.raises(BuildError, match=r"^cannot be planned: a tensor of float8_e4m3fn$"):
        _planned(main, port, port, cpu)


def _small_program(target: tvm.target.Target) -> PlannedProgram:
    from tvm.script import relax as R

    @R.function  # type: ignore[misc]
    def main(x: R.Tensor((4,), "float32")):  # type: ignore[no-untyped-def]
        return R.add(x, x)

    port = (Tensor("x", (4,), "float32"),)
    return _planned(main, port, port, target)[0]


def test_a_kernel_says_why_it_refuses_its_arguments(cpu: tvm.target.Target) -> None:
    import tvm

    from kintune.runtime.guarded_run import load_kernels

    kernels = load_kernels(_small_program(cpu).library)
    with pytest.raises(ValueError, match=r"Invalid T_add\.shape\[0\] on argument #2"):
        kernels["add"](*(tvm.runtime.empty((size,), "float32") for size in (4, 4, 3)))


def test_the_library_loads_without_tvm(cpu: tvm.target.Target, tmp_path: Path) -> None:
    """All its symbols are found at once; a kernel that refuses its arguments calls what `kintune_raise` points to."""
    path = tmp_path / "library.so"
    path.write_bytes(_small_program(cpu).library)
    code = f"""
import ctypes, os, sys
library = ctypes.CDLL({str(path)!r}, mode=os.RTLD_NOW | os.RTLD_LOCAL)
result = (ctypes.c_int64 * 2)()
assert library.__tvm_ffi_add(None, None, 0, result) == -1
said = []
kind = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p), ctypes.c_int32)
hook = kind(lambda kind, parts, count: said.append((kind, b"".join(parts[i] or b"" for i in range(count)))))
ctypes.c_void_p.in_dll(library, "kintune_raise").value = ctypes.cast(hook, ctypes.c_void_p).value
assert library.__tvm_ffi_add(None, None, 0, result) == -1
assert said[0][0] == b"TypeError" and b"add" in said[0][1], said
assert not hasattr(library, "TVMFFIErrorSetRaisedFromCStrParts")
assert "tvm" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.needs("aarch64-linker")
def test_a_library_for_another_architecture() -> None:
    import tvm

    from kintune.runtime.target import resolve_target

    text = resolve_target('{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76"}', 1)
    library = _small_program(tvm.target.Target(json.loads(text))).library
    assert int.from_bytes(library[18:20], "little") == 183  # EM_AARCH64
    assert b"kintune_raise" in library
