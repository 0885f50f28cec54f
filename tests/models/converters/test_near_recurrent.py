"""A recurrent layer is one kernel; what is not quite one stays with onnxruntime, or is lowered as usual."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from kintune.errors import ModelError
from tests.support.examples import compiled_examples
from tests.support.recurrent import ACTIVATIONS, Cell, Layer

pytestmark = pytest.mark.tvm

TWISTS = {
    "clip": "clipping is not supported",
    "coupled": "coupled input and forget gates are not supported",
    "activation": "are not supported",
    "last activation": "are not supported",
}
LSTM_CELLS = ("", "coupled", "peephole", "hard", "no output", "squared", "mixed", "reversed")
GRU_CELLS = ("", "hard", "mixed", "reversed")


def layers(*twists: str) -> st.SearchStrategy[Layer]:
    return st.builds(
        Layer,
        cell=st.sampled_from(tuple(ACTIVATIONS)),
        direction=st.sampled_from(("forward", "reverse", "bidirectional")),
        steps=st.sampled_from((1, 2, 4)),
        batch=st.sampled_from((1, 3)),
        features=st.sampled_from((1, 3)),
        hidden=st.sampled_from((1, 5, 16, 17)),
        given=st.sets(st.sampled_from("blhcp")).map(lambda names: "".join(sorted(names))),
        fixed=st.sampled_from(("wrb", "wrblhcp", "wr", "w", "")),
        short=st.booleans(),
        outputs=st.tuples(st.booleans(), st.booleans(), st.booleans()),
        reset_after=st.booleans(),
        lower_case=st.booleans(),
        twist=st.sampled_from(twists),
    ).map(Layer.settled)


def cells(cell: str, *twists: str) -> st.SearchStrategy[Cell]:
    return st.builds(
        Cell,
        cell=st.just(cell),
        steps=st.sampled_from((1, 2, 3)),
        batch=st.sampled_from((1, 2)),
        features=st.sampled_from((1, 3)),
        hidden=st.sampled_from((1, 5, 16)),
        together=st.booleans(),
        twist=st.sampled_from(twists),
    )


drawn = compiled_examples(
    12, derandomize=True, deadline=None, phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip


def kernels(model: Any, folder: Path) -> list[str]:
    """The cells that kernels of the imported model compute."""
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    path = folder / "imported.onnx"
    path.write_bytes(model.SerializeToString())
    module = load(parse_ref(str(path))).module
    names = [str(variable.name_hint) for variable in module.get_global_vars()]
    return [name.rstrip("0123456789") for name in names if name.rstrip("0123456789") in ("lstm", "gru", "rnn")]


@drawn
@given(layer=layers(""))
def test_whatever_is_drawn_is_one_kernel_that_computes_it(layer: Layer, compare_model: Any, tmp_path: Path) -> None:
    model, feeds = layer.model()
    compare_model(model, feeds)
    assert kernels(model, tmp_path) == [layer.cell.lower()], layer


@drawn
@given(layer=layers(*TWISTS))
def test_what_is_not_quite_a_layer_stays_with_onnxruntime(layer: Layer, tmp_path: Path) -> None:
    """It alone, with the reason; and the network computes what it did."""
    import tvm

    from kintune.models.onnx import read
    from kintune.partition.compilable import CompilableNodes
    from kintune.partition.composition import compose
    from kintune.partition.partition import partition
    from kintune.runtime.target import resolve_target
    from tests.support.partitions import DIGEST, computed, with_functions

    model, feeds = layer.model()
    with pytest.raises(ModelError, match=TWISTS[layer.twist]):
        kernels(model, tmp_path)
    read_model = read(tmp_path / "imported.onnx", {})
    target = tvm.target.Target(json.loads(resolve_target("native", 1)))
    found = partition(read_model, CompilableNodes(target, tmp_path / "answers").why_not)
    assert found.operators[layer.cell] == 1
    assert any(TWISTS[layer.twist] in why for why in found.reasons.values())
    everything = range(len(found.regions))
    host = compose(found.marked, found.regions, everything, DIGEST)
    ours = computed(with_functions(host, found.marked, found.regions, everything), feeds)
    for name, wanted in computed(model, feeds).items():
        np.testing.assert_allclose(ours[name], wanted, rtol=1e-4, atol=1e-5, err_msg=str(layer))


@drawn
@given(cell=st.one_of(cells("LSTM", *LSTM_CELLS), cells("GRU", *GRU_CELLS)))
def test_cells_that_are_spelled_out_are_lowered_as_usual(cell: Cell, compare_model: Any, tmp_path: Path) -> None:
    model, feeds = cell.model()
    compare_model(model, feeds)
    assert kernels(model, tmp_path) == []


def test_the_draws_reach_all_that_is_not_quite_a_layer() -> None:
    found = {Layer(twist=twist).settled().model()[0].SerializeToString() for twist in ("", *TWISTS)}
    assert len(found) == len(TWISTS) + 1
