"""A norm becomes the prologue of the product that alone reads it, and computes what onnxruntime computes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from kintune.core.candidate import Candidate, Sketch
from tests.support.norms import Normed, write_normed
from tests.support.quantised import Written, chosen_by_rule, lowered, run_onnxruntime, run_untuned
from tests.support.sums import MACHINE

pytestmark = pytest.mark.tvm


def written(normed: Normed, folder: Path, data: Any = None) -> Written:
    path = folder / "normed.onnx"
    write_normed(normed, path)
    return Written(path, {"x": normed.data() if data is None else data}, 0.0)


@pytest.mark.parametrize(
    ("changes", "kernels"),
    [
        ({}, [("rms_norm", "matmul")]),
        ({"norm": "layer", "after": "relu"}, [("layer_norm", "matmul", "relu")]),
        ({"after": "twice"}, [("rms_norm",), ("matmul", "relu"), ("matmul", "add")]),  # each product would compute it
        ({"bits": 32, "columns": 64}, [("rms_norm", "matmul")]),
        ({"lead": (40,)}, [("rms_norm",), ("matmul",)]),  # where the product takes long, nothing is gained
        ({"bits": 32, "inputs": 1024, "columns": 512}, [("rms_norm",), ("matmul",)]),
        ({"inputs": 1024, "columns": 512}, [("rms_norm", "matmul")]),
        ({"columns": 8}, [("rms_norm",), ("matmul",)]),  # no program of ours computes such a product
        ({"norm": "axes", "lead": (2, 3)}, [("layer_norm",), ("matmul",)]),  # no row is normed by itself
    ],
    ids=str,
)
def test_a_norm_that_one_product_reads_is_its_prologue(
    changes: dict[str, Any], kernels: list[tuple[str, ...]], tmp_path: Path
) -> None:
    """The nodes of the user's graph are found in the one kernel."""
    network, _ = lowered(written(Normed(**changes), tmp_path))
    steps = network.trail.steps
    assert sorted(tuple(steps[step].operator for step in each) for each in network.trail.kernels) == sorted(kernels)
    assert all(each.operator == "dense" for each in network.workloads if "matmul" in each.name)


def chosen(network: Any, target: Any) -> dict[str, tuple[Sketch, Candidate]]:
    found = chosen_by_rule(network, target, "blockwise", MACHINE) or chosen_by_rule(network, target, "vectors", MACHINE)
    assert len(found) == 1
    return found


@pytest.mark.parametrize("norm", ["rms", "layer"])
@pytest.mark.parametrize(
    ("lead", "inputs", "bits", "after"),
    [
        ((1,), 64, 4, ""),
        ((1, 1), 100, 8, "relu"),
        ((2, 7), 63, 4, "relu"),
        ((16,), 200, 2, ""),
        ((2,), 1024, 4, ""),
        ((3,), 129, 32, "relu"),
    ],
)
def test_products_of_norms_are_those_of_onnxruntime(
    norm: str, lead: tuple[int, ...], inputs: int, bits: int, after: str, tmp_path: Path
) -> None:
    network = written(Normed(norm, lead, inputs, 70, bits, after), tmp_path)
    found, expected = run_untuned(network, chosen), run_onnxruntime(network)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * float(np.abs(expected).max()))


def put(value: float, x: Any) -> Any:
    """The data with one element of this value, in row 1."""
    x[1, 5] = value
    return x


EXTREMES = {
    "zeros": lambda x: x * 0,
    "large": lambda x: x * 1e4,
    "squares are infinite": lambda x: x * 1e20,
    "denormal": lambda x: x * 1e-40,
    "equal": lambda x: x * 0 + 3,
    **{str(value): partial(put, value) for value in (float(np.finfo(np.float32).max), np.inf, -np.inf, np.nan)},
}


@pytest.mark.parametrize("norm", ["rms", "layer"])
@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("bits", [4, 32])
def test_no_number_is_lost_at_extremes(bits: int, norm: str, extreme: str, tmp_path: Path) -> None:
    """The product reads what the norm gives, so nothing overflows that did not in the model."""
    normed = Normed(norm, (3,), 64, 70, bits)
    network = written(normed, tmp_path, EXTREMES[extreme](normed.data()).astype(np.float32))
    found, expected = run_untuned(network, chosen), run_onnxruntime(network)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("bits", "program"), [(4, "blockwise"), (32, "vectors")])
def test_a_search_tries_programs_that_take_prologues_alone(bits: int, program: str, tmp_path: Path) -> None:
    """The compiler's rules would make kernels that store the norm."""
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.search.sketch_program import program_of

    network, target = lowered(written(Normed(bits=bits, inputs=128), tmp_path))
    (workload,) = network.workloads
    found = generate_sketches(workload.digest, workload.module, target)
    assert [program_of(sketch).partition(".")[0] for sketch in found] == [program]


def test_programs_that_compute_no_prologues_do_not_take_them(tmp_path: Path) -> None:
    from kintune.compiler.kernels.contraction import OF_BLOCKWISE
    from kintune.compiler.kernels.reading import joined
    from kintune.compiler.space.weights import weight_positions

    network, _ = lowered(written(msgspec.structs.replace(Normed(), norm="layer"), tmp_path))
    (workload,) = network.workloads
    assert joined(workload.module, OF_BLOCKWISE) is None
    sums = joined(workload.module, OF_BLOCKWISE, prologues=True)
    assert sums is not None
    assert sums.found.prologue is not None
    assert sums.data_position == -1
    assert sums.found.parameters == tuple(sorted(weight_positions(workload.module["main"]))[-2:])
