"""Fixtures: two small networks, lowered, and a way to run a compiled network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from tests.support.graphs import run_onnxruntime

if TYPE_CHECKING:
    import tvm

    from kintune.compiler.graph.lower import Lowered
    from kintune.models.model import ImportedModel

RunsProgram = Callable[..., "list[np.ndarray[Any, Any]]"]


class Small(NamedTuple):
    """A network of a few layers: the ONNX file, as imported, and lowered for a CPU with AVX2."""

    onnx: Path
    model: ImportedModel
    lowered: Lowered
    target: tvm.target.Target


@pytest.fixture(scope="session")
def cpu() -> tvm.target.Target:
    import tvm

    from kintune.compiler.space.generator import load_intrinsics

    load_intrinsics()
    return tvm.target.Target({"kind": "llvm", "mcpu": "core-avx2", "num-cores": 2})


@pytest.fixture(scope="session")
def small_conv(tmp_path_factory: pytest.TempPathFactory, cpu: tvm.target.Target) -> Small:
    """Convolution, batch norm and ReLU6 four times, twice the same; a residual; a classifier."""
    from kintune.models.zoo.convolution import CLASSES, classifier, conv_bn_relu6, image_input
    from kintune.models.zoo.network import NetworkBuilder

    b = NetworkBuilder("small_conv")
    x = conv_bn_relu6(b, "stem", image_input(b, 1, 16), 3, 16, 3, 2)
    y = conv_bn_relu6(b, "first", x, 16, 16, 3)
    y = conv_bn_relu6(b, "second", y, 16, 16, 3)
    y = conv_bn_relu6(b, "depthwise", b.node("Add", x, y), 16, 16, 3, groups=16)
    network = b.finish([("logits", classifier(b, "head", y, 16), (1, CLASSES))])
    return _small(network, tmp_path_factory.mktemp("conv"), cpu)


@pytest.fixture(scope="session")
def small_transformer(tmp_path_factory: pytest.TempPathFactory, cpu: tvm.target.Target) -> Small:
    """One encoder layer of eight tokens, with an embedding of their kinds."""
    import msgspec

    from kintune.models.zoo.bert import BERT_BASE, build

    config = msgspec.structs.replace(
        BERT_BASE, name="small_bert", layers=1, hidden=32, heads=2, vocabulary=50, positions=16, sequence=8
    )
    return _small(build(config, 1), tmp_path_factory.mktemp("transformer"), cpu)


@pytest.fixture(scope="session")
def run_program() -> RunsProgram:
    """Runs `main` of a compiled network on numpy arrays, its weights after its inputs."""

    def run(program: Any, *inputs: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        import tvm
        from tvm import relax

        from kintune.runtime.artifact import link_program, load_artifact

        executable = program.executable
        if program.object_files:
            executable = load_artifact(link_program(executable, "", program.object_files).library)
        main = relax.VirtualMachine(executable, tvm.cpu())["main"]
        found = main(*(tvm.runtime.tensor(array) for array in inputs), *program.weights)
        return [found.numpy()] if isinstance(found, tvm.runtime.Tensor) else [part.numpy() for part in found]

    return run


def _small(network: Any, directory: Path, target: tvm.target.Target) -> Small:
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from kintune.models.zoo.render import render

    path = render(network, directory, seed=0)
    model = load(parse_ref(str(path)))
    return Small(path, model, lower(model.module, target), target)


def lower_operator(shape: tuple[int, ...], operator: Callable[[Any], Any], target: tvm.target.Target) -> Lowered:
    """The network that computes an operator of one tensor of float32, lowered."""
    from tvm import relax

    from kintune.compiler.graph.lower import lower

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(operator(x))
        builder.emit_func_output(result)
    return lower(builder.get(), target)


def lowered_as_onnxruntime_computes(
    path: Path, shape: Sequence[int], target: tvm.target.Target, run_program: RunsProgram, said: object = ""
) -> Lowered:
    """The model of a file, lowered, whose outputs for an input "x" of this shape are those of onnxruntime.

    They may differ by 1e-4 of themselves and 1e-5 of the largest; `said` is added to the message where they do.
    """
    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    lowered = lower(load(parse_ref(str(path))).module, target)
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    for one, other in zip(run_program(assemble(lowered, {}, target), x), run_onnxruntime(path, x), strict=True):
        largest = float(np.abs(other[np.isfinite(other)]).max(initial=0.0))
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * largest, err_msg=str(said))
    return lowered


def results_of(lowered: Lowered, *words: str) -> list[tuple[int, ...]]:
    """The shapes of the results of the kernels that `main` calls, those with one of the words in their names."""
    from kintune.compiler.graph.rewriting import CALL_KERNEL, operator_of, static_shape

    found: list[tuple[int, ...]] = []
    for block in lowered.module["main"].body.blocks:
        for binding in block.bindings:
            if operator_of(binding.value) == CALL_KERNEL:
                name = str(binding.value.args[0].name_hint)
                found += [static_shape(binding.var) or ()] if any(word in name for word in words) else []
    return found
