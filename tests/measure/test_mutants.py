"""Wrong programs are found out, wherever in a network the wrong kernel is, by the comparison that the proof makes."""

import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from kintune.graph.inputs import Array, draw_inputs
from kintune.measure.noise import moved
from kintune.measure.numerics import compare_outputs

pytestmark = pytest.mark.tvm

RNG = np.random.default_rng(3)


class Case(NamedTuple):
    """A network, lowered, its inputs, and what onnxruntime makes of them: plainly, and with noise."""

    lowered: Any
    target: Any
    model: Any
    inputs: dict[str, Array]
    expected: list[Array]
    samples: list[list[Array]]

    def differs(self, lowered: Any) -> str:
        """How the network with these kernels disagrees, as the proof says it."""
        import tvm

        from kintune.graph.assemble import assemble

        program = assemble(lowered, {}, self.target)
        with tempfile.TemporaryDirectory() as directory:
            program.executable.export_library(f"{directory}/m.so")
            library = tvm.runtime.load_module(f"{directory}/m.so")
        machine = tvm.runtime.vm.VirtualMachine(library, tvm.cpu())
        arguments = [tvm.runtime.tensor(array) for array in self.inputs.values()]
        result = machine["main"](*arguments, *program.weights)
        outputs = [result.numpy()] if hasattr(result, "numpy") else [leaf.numpy() for leaf in result]
        names = [tensor.name for tensor in self.model.outputs]
        return compare_outputs(names, outputs, self.expected, 1e-3, 1e-3, self.samples).disagreement


def network(path: Path, half: bool = False) -> None:
    """Three convolutions with epilogues, a mean and a product."""
    import onnx
    from onnx import helper, numpy_helper

    dtype = np.float16 if half else np.float32
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weights, nodes, channels, value = [], [], 3, "x"
    for i in range(3):
        weights += [
            numpy_helper.from_array((RNG.standard_normal((8, channels, 3, 3)) / 4).astype(dtype), f"w{i}"),
            numpy_helper.from_array(RNG.standard_normal(8).astype(dtype), f"b{i}"),
        ]
        nodes += [
            helper.make_node("Conv", [value, f"w{i}", f"b{i}"], [f"c{i}"], pads=[1] * 4, strides=[1 + i % 2] * 2),
            helper.make_node("Relu", [f"c{i}"], [f"r{i}"]),
        ]
        value, channels = f"r{i}", 8
    weights.append(numpy_helper.from_array((RNG.standard_normal((8, 10)) / 2).astype(dtype), "fc"))
    nodes += [
        helper.make_node("ReduceMean", [value], ["m"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["m", "fc"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", kind, [1, 3, 12, 12])
    y = helper.make_tensor_value_info("y", kind, [1, 10])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture(scope="module", params=["single", "half"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    import tvm

    from kintune.graph.lower import lower
    from kintune.job.payloads import ModelRef
    from kintune.measure.rivals import Subject, make_rival
    from kintune.measure.target import resolve_target
    from kintune.models.importer import load

    path = tmp_path_factory.mktemp("mutants") / "m.onnx"
    network(path, half=request.param == "half")
    model = load(ModelRef("onnx", str(path), "m"))
    target = tvm.target.Target(json.loads(resolve_target("native", 1)))
    inputs = draw_inputs(model.inputs, 0)
    reference = make_rival("onnxruntime", exact=True)
    reference.prepare(Subject(onnx=str(path)), 1, inputs)
    expected, samples = reference.run(), []
    for seed in range(1, 4):
        reference.disturb(seed)
        reference.feed({name: moved(array, (seed, 1)) for name, array in inputs.items()})
        samples.append(reference.run())
    return Case(lower(model.module, target), target, model, inputs, expected, samples)


def test_the_network_itself_agrees(case: Case) -> None:
    assert case.differs(case.lowered) == ""


@pytest.mark.parametrize("third", ["first", "middle", "last"])
def test_each_mutant_disagrees(case: Case, third: str) -> None:
    import tvm

    from tests.support.mutants import MUTATIONS, mutant

    module = case.lowered.module
    names = list(case.lowered.functions)
    size = -(-len(names) // 3)
    start = ["first", "middle", "last"].index(third) * size
    tried = 0
    for mutation in MUTATIONS:
        for name in names[start : start + size]:
            variable = module.get_global_var(name)
            wrong = mutant(module[variable], mutation)
            if wrong is None:
                continue
            changed = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
            changed.update_func(variable, wrong)
            assert case.differs(case.lowered._replace(module=changed)), f"{mutation} in {name}"
            tried += 1
            break
    assert tried >= 3
