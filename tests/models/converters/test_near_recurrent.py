"""A recurrent layer is one kernel; cells that are spelled out are lowered as usual."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from tests.support.examples import compiled_examples
from tests.support.recurrent import ACTIVATIONS, Cell, Layer

pytestmark = pytest.mark.tvm

TWISTS = ("clip", "coupled", "activation", "last activation")
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
@given(layer=layers("", *TWISTS))
def test_whatever_is_drawn_is_one_kernel_that_computes_it(layer: Layer, compare_model: Any, tmp_path: Path) -> None:
    model, feeds = layer.model()
    compare_model(model, feeds)
    assert kernels(model, tmp_path) == [layer.cell.lower()], layer


@drawn
@given(cell=st.one_of(cells("LSTM", *LSTM_CELLS), cells("GRU", *GRU_CELLS)))
def test_cells_that_are_spelled_out_are_lowered_as_usual(cell: Cell, compare_model: Any, tmp_path: Path) -> None:
    model, feeds = cell.model()
    compare_model(model, feeds)
    assert kernels(model, tmp_path) == []


def test_the_draws_reach_every_twist() -> None:
    found = {Layer(twist=twist).settled().model()[0].SerializeToString() for twist in ("", *TWISTS)}
    assert len(found) == len(TWISTS) + 1
