"""The comparison of a validation finds wrong programs, wherever in a network the wrong kernel is."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from kintune.runtime.inputs import Array, draw_inputs
from kintune.validate.numerics import compare_each_program, compare_outputs, perturbed

pytestmark = pytest.mark.tvm

ZOO: dict[str, dict[str, int]] = {
    "mobilenet_v2": {"image": 64},
    "resnet50": {"image": 64},
    "bert_base": {"sequence": 16, "layers": 3},
    "gpt2": {"sequence": 16, "layers": 3},
}
"""The networks of the zoo, small."""

KINDS = (
    "an index off by one",
    "a dropped epilogue",
    "a wrong operand",
    "a tail not written",
    "a reduction one short",
)

SEED = 3
"""Of the weights of each network, which are the same whatever other networks are tried before."""


class Case(NamedTuple):
    """A network, lowered, its inputs, and what onnxruntime makes of them: plainly, and with noise."""

    lowered: Any
    target: Any
    model: Any
    inputs: dict[str, Array]
    expected: list[Array]
    samples: list[list[Array]]

    def differs(self, lowered: Any) -> str:
        """How the network with these kernels disagrees, as a validation words it."""
        names = [tensor.name for tensor in self.model.outputs]
        outputs = self._run(lowered)
        found = compare_outputs(names, outputs, self.expected, 1e-3, 1e-3, self.samples)
        if found.disagreement or found.noise is None:
            return found.disagreement
        from kintune.compiler.graph.side_by_side import side_by_side

        kernels = {digest: name for name, digest in reversed(self.lowered.functions.items())}  # the first of each
        alone = side_by_side(self.lowered, kernels)
        module = alone.lowered.module
        for name in self.lowered.functions:
            module.update_func(module.get_global_var(name), lowered.module[name])
        compared = compare_each_program(alone.outputs, self._run(alone.lowered._replace(module=module)), 1e-3, 1e-3)
        return "; ".join(f"{kernels[workload]}: {how}" for workload, how in compared.wrong.items())

    def _run(self, lowered: Any) -> list[Array]:
        import tvm

        from kintune.compiler.graph.assemble import assemble

        program = assemble(lowered, {}, self.target)
        with tempfile.TemporaryDirectory() as directory:
            program.executable.export_library(f"{directory}/m.so")
            library = tvm.runtime.load_module(f"{directory}/m.so")
        machine = tvm.runtime.vm.VirtualMachine(library, tvm.cpu())
        for inputs in (
            draw_inputs(self.model.inputs, 99),
            self.inputs,
        ):  # as in a validation: memory holds other values
            arguments = [tvm.runtime.tensor(array) for array in inputs.values()]
            result = machine["main"](*arguments, *program.weights)
        leaves = [result.numpy()] if hasattr(result, "numpy") else [leaf.numpy() for leaf in result]
        return [np.asarray(leaf) for leaf in leaves]

    def is_the_same(self, lowered: Any) -> bool:
        """Whether the network with these kernels computes the very same, on other inputs as well: no mutant at all."""
        for seed in range(3):
            drawn = self._replace(inputs=draw_inputs(self.model.inputs, seed))
            found, expected = drawn._run(lowered), drawn._run(self.lowered)
            if any(not np.array_equal(a, b, equal_nan=True) for a, b in zip(found, expected, strict=True)):
                return False
        return True

    def mutants(self, mutation: str, third: int) -> Iterator[tuple[str, Any]]:
        """The network with one of its kernels wrong, for each kernel of a third that it can be done to, by name."""
        import tvm

        from tests.support.mutants import mutant

        module, names = self.lowered.module, list(self.lowered.functions)
        size = -(-len(names) // 3)
        for name in names[third * size : (third + 1) * size]:
            variable = module.get_global_var(name)
            if mutation == "a tail not written" and _gives_integers(module[variable]):
                continue  # an index that is not written is what memory holds: reading there ends this process
            wrong = mutant(module[variable], mutation)
            if wrong is not None:
                changed = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
                changed.update_func(variable, wrong)
                yield name, self.lowered._replace(module=changed)


def _gives_integers(kernel: Any) -> bool:
    """Whether a kernel's last argument, its output, is of integers that may be indices."""
    signature = re.search(r"def \w+\((.*)\):", kernel.script(show_meta=False))
    return signature is not None and '"int' in signature[1].rpartition("Buffer(")[2]


def network(path: Path, half: bool = False) -> None:
    """Three convolutions with epilogues, a mean and a product."""
    import onnx
    from onnx import helper, numpy_helper

    rng, dtype = np.random.default_rng(SEED), np.float16 if half else np.float32
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weights, nodes, channels, value = [], [], 3, "x"
    for i in range(3):
        weights += [
            numpy_helper.from_array((rng.standard_normal((8, channels, 3, 3)) / 4).astype(dtype), f"w{i}"),
            numpy_helper.from_array(rng.standard_normal(8).astype(dtype), f"b{i}"),
        ]
        nodes += [
            helper.make_node("Conv", [value, f"w{i}", f"b{i}"], [f"c{i}"], pads=[1] * 4, strides=[1 + i % 2] * 2),
            helper.make_node("Relu", [f"c{i}"], [f"r{i}"]),
        ]
        value, channels = f"r{i}", 8
    weights.append(numpy_helper.from_array((rng.standard_normal((8, 10)) / 2).astype(dtype), "fc"))
    nodes += [
        helper.make_node("ReduceMean", [value], ["m"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["m", "fc"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", kind, [1, 3, 12, 12])
    y = helper.make_tensor_value_info("y", kind, [1, 10])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def quantised(path: Path) -> None:
    """Two convolutions and a product in bytes: everything is quantised and dequantised."""
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(SEED)
    weights, nodes = [], []

    def constant(name: str, value: Any) -> str:
        weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def through_bytes(value: str, scale: float) -> str:
        scales = [constant(f"{value}_s", np.float32(scale)), constant(f"{value}_z", np.int8(3))]
        nodes.append(helper.make_node("QuantizeLinear", [value, *scales], [f"{value}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{value}_q", *scales], [f"{value}_d"]))
        return f"{value}_d"

    def weight(name: str, *shape: int) -> str:
        stored = [
            constant(f"{name}_q", rng.integers(-90, 90, shape).astype(np.int8)),
            constant(f"{name}_s", np.float32(0.004)),
            constant(f"{name}_z", np.int8(0)),
        ]
        nodes.append(helper.make_node("DequantizeLinear", stored, [name]))
        return name

    value = through_bytes("x", 0.03)
    for i, channels in enumerate((3, 8)):
        bias = constant(f"b{i}", rng.standard_normal(8).astype(np.float32))
        kernel = weight(f"w{i}", 8, channels, 3, 3)
        nodes.append(helper.make_node("Conv", [value, kernel, bias], [f"c{i}"], pads=[1] * 4, strides=[2] * 2))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        value = through_bytes(f"r{i}", 0.05)
    nodes.append(helper.make_node("Flatten", [value], ["f"]))
    nodes.append(helper.make_node("MatMul", ["f", weight("fc", 128, 12)], ["m"]))
    nodes.append(helper.make_node("Identity", [through_bytes("m", 0.05)], ["y"]))
    _save(path, nodes, weights, {"x": (1, 3, 16, 16)}, (1, 12))


def chaotic(path: Path) -> None:
    """Eight layers that each make whatever their inputs differ by some times as large."""
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(SEED)
    weights, nodes, value, widths = [], [], "x", (24, 32, 28, 36, 30, 26, 34, 22, 24)
    for i, (rows, columns) in enumerate(pairwise(widths)):
        matrix = rng.standard_normal((rows, columns)) * 6 / np.sqrt(rows)
        weights.append(numpy_helper.from_array(matrix.astype(np.float32), f"w{i}"))
        weights.append(numpy_helper.from_array(rng.standard_normal(columns).astype(np.float32), f"b{i}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"]))
        nodes.append(helper.make_node("Sin", [f"a{i}"], [f"t{i}"]))
        value = f"t{i}"
    nodes.append(helper.make_node("Identity", [value], ["y"]))
    _save(path, nodes, weights, {"x": (6, 24)}, (6, 24))


def transformer(path: Path) -> None:
    """A look-up in a table, attention of one head, and two products, each with its norm."""
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(SEED)
    weights, nodes = [], []

    def constant(name: str, *shape: int, scale: float = 0.3) -> str:
        weights.append(numpy_helper.from_array((rng.standard_normal(shape) * scale).astype(np.float32), name))
        return name

    def node(operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    value = node("Gather", [constant("table", 40, 16, scale=1), "ids"], "embedded")
    query, key, content = (node("MatMul", [value, constant(f"w{n}", 16, 16)], n) for n in "qkv")
    scores = node("MatMul", [query, node("Transpose", [key], "kt", perm=[0, 2, 1])], "scores")
    attended = node("MatMul", [node("Softmax", [scores], "shares", axis=-1), content], "attended")
    value = node("Add", [value, attended], "residual")
    value = node("LayerNormalization", [value, constant("g", 16), constant("o", 16)], "normed", axis=-1)
    wide = node("Add", [node("MatMul", [value, constant("w1", 16, 32)], "up"), constant("b1", 32)], "wide")
    wide = node("Mul", [wide, node("Erf", [wide], "erf")], "gelu")
    value = node("Add", [value, node("MatMul", [wide, constant("w2", 32, 16)], "down")], "second")
    node("LayerNormalization", [value, constant("g2", 16), constant("o2", 16)], "y", axis=-1)
    _save(path, nodes, weights, {"ids": (1, 9)}, (1, 9, 16), integers=True)


def _save(
    path: Path,
    nodes: list[Any],
    weights: list[Any],
    inputs: dict[str, tuple[int, ...]],
    shape: tuple[int, ...],
    integers: bool = False,
) -> None:
    import onnx
    from onnx import TensorProto, helper

    kind = TensorProto.INT64 if integers else TensorProto.FLOAT
    given = [helper.make_tensor_value_info(name, kind, extents) for name, extents in inputs.items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "g", given, [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


NETWORKS: dict[str, Callable[[Path], None]] = {
    "single": network,
    "half": partial(network, half=True),
    "quantised": quantised,
    "chaotic": chaotic,
    "transformer": transformer,
}


def case_of(path: Path) -> Case:
    """The network in a file, lowered, and what onnxruntime makes of it."""
    import tvm

    from kintune.compiler.graph.lower import lower
    from kintune.core.model import ModelRef
    from kintune.models.importer import load
    from kintune.runtime.target import resolve_target
    from kintune.validate.baselines import BaselineModel, make_baseline

    model = load(ModelRef("onnx", str(path), "m"))
    target = tvm.target.Target(json.loads(resolve_target("native", 1)))
    inputs = draw_inputs(model.inputs, 0)
    reference = make_baseline("onnxruntime", exact=True)
    reference.prepare(BaselineModel(onnx=str(path)), 1, inputs)
    expected, samples = reference.run(), []
    for seed in range(1, 4):
        reference.perturb_weights(seed)
        reference.feed({name: perturbed(array, (seed, 1)) for name, array in inputs.items()})
        samples.append(reference.run())
    return Case(lower(model.module, target), target, model, inputs, expected, samples)


FAST = ("quantised",)


@pytest.fixture(
    scope="module",
    params=[name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS],
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    path = tmp_path_factory.mktemp("mutants") / "m.onnx"
    NETWORKS[request.param](path)
    return case_of(path)


def test_the_network_itself_agrees(case: Case) -> None:
    assert case.differs(case.lowered) == ""


def test_a_mutant_of_each_kind_disagrees(case: Case) -> None:
    """One kernel a kind, by turns in the first, the middle and the last third."""
    tried = 0
    for number, mutation in enumerate(KINDS):
        mutants = [mutant for third in range(3) for mutant in case.mutants(mutation, (number + third) % 3)]
        for name, wrong in mutants:
            if case.differs(wrong):
                tried += 1
                break
            assert case.is_the_same(wrong), f"{mutation} in {name}"
    assert tried >= 4


@pytest.mark.slow
@pytest.mark.parametrize("third", range(3), ids=["first", "middle", "last"])
def test_each_mutant_disagrees(case: Case, third: int) -> None:
    tried = 0
    for mutation in KINDS:
        for name, wrong in case.mutants(mutation, third):
            assert case.differs(wrong) or case.is_the_same(wrong), f"{mutation} in {name}"
            tried += 1
    assert tried >= 3


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted(ZOO))
def test_mutants_of_the_zoo_disagree(name: str, tmp_path: Path) -> None:
    from kintune.models.zoo import write

    case = case_of(write(name, tmp_path, **ZOO[name]))
    assert case.differs(case.lowered) == ""
    tried = 0
    for third in range(3):
        for mutation in KINDS:
            kernel, wrong = next(case.mutants(mutation, third), ("", None))
            if wrong is not None:
                assert case.differs(wrong) or case.is_the_same(wrong), f"{mutation} in {kernel}"
                tried += 1
    assert tried >= 9
