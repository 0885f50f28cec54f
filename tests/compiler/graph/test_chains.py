"""Whatever follows convolutions in a file, as drawn: the same numbers as onnxruntime's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.graphs import Graph, run_onnxruntime

if TYPE_CHECKING:
    import tvm

    from tests.support.networks import RunsProgram

pytestmark = pytest.mark.tvm

BATCH, CHANNELS, ROWS, COLUMNS = 2, 4, 6, 5
CHAINS = 10
SHAPES = ("scalar", "one", "ones", "channels", "all channels", "columns", "rows", "batch")
SINGLE = SHAPES[:3]
VALUES = (0.0, -0.0, 1.0, -2.0, 0.5, 3.0)
FAR = (1e-3, 1e-30, 1e30, 1e-45, float("inf"), float("-inf"), float("nan"))
ACTIVATIONS = ("Relu", "HardSwish", "Sigmoid", "Neg")


class Step(NamedTuple):
    """An operator of a chain: what it is, its constant's values and shape, and whether that comes first."""

    operator: str
    values: tuple[float, ...]
    shape: str
    first: bool


class Chain(NamedTuple):
    """A padding, a convolution or a transposed one of groups, and what follows.

    Something else reads the result of step `read`, where there is such a step.
    """

    pads: tuple[int, ...]
    pad_value: float
    padding: tuple[int, ...]
    transposed: bool
    groups: int
    steps: tuple[Step, ...]
    read: int


def _is_kept(step: Step) -> bool:
    """The compiler takes `0 * x` and `0 / x` for 0, whatever `x` is, where the zero is one number in the program."""
    return step.operator not in ("Mul", "Div") or step.shape not in SINGLE or step.values[0] != 0


steps = st.builds(
    Step,
    st.sampled_from(("Add", "Sub", "Mul", "Mul", "Div", "BatchNormalization", *ACTIVATIONS)),
    st.lists(st.sampled_from((*VALUES * 4, *FAR)), min_size=1, max_size=3).map(tuple),
    st.sampled_from(SHAPES),
    st.booleans(),
).filter(_is_kept)
chains = st.builds(
    Chain,
    st.tuples(*[st.integers(-1, 2)] * 4),
    st.sampled_from((0.0, 0.0, -0.0, 1.0)),
    st.tuples(*[st.integers(0, 2)] * 4),
    st.booleans(),
    st.sampled_from((1, 2, 4)),
    st.lists(steps, max_size=4).map(tuple),
    st.integers(0, 4),
)


def _add(g: Graph, chain: Chain) -> list[str]:
    """The chain's results: its last, and one in the middle where something else reads that."""
    pads = g.constant([0, 0, *chain.pads[:2], 0, 0, *chain.pads[2:]], np.int64)
    x = g("Pad", "x", pads, g.constant(chain.pad_value)) if any(chain.pads) else "x"
    if chain.transposed:
        weight = g.weight(CHANNELS, CHANNELS // chain.groups, 3, 3)
        x = g("ConvTranspose", x, weight, pads=list(chain.padding), group=chain.groups)
    else:
        x = g.conv(x, CHANNELS, CHANNELS, pads=list(chain.padding), group=chain.groups)
    more, sign = (2, -1) if chain.transposed else (-2, 1)
    rows, columns = (
        extent + sum(chain.pads[side::2]) + more + sign * sum(chain.padding[side::2])
        for side, extent in enumerate((ROWS, COLUMNS))
    )
    shapes: dict[str, tuple[int, ...]] = {
        "scalar": (), "one": (1,), "ones": (1, 1, 1, 1), "channels": (CHANNELS, 1, 1),
        "all channels": (1, CHANNELS, 1, 1), "columns": (columns,), "rows": (rows, 1), "batch": (BATCH, 1, 1, 1),
    }  # fmt: skip
    results = []
    for number, step in enumerate(chain.steps):
        if step.operator in ACTIVATIONS:
            x = g(step.operator, x)
        elif step.operator == "BatchNormalization":
            x = g(step.operator, x, *(g.weight(CHANNELS) for _ in range(4)), epsilon=1e-3)
        else:
            constant = g.constant(np.resize(np.asarray(step.values), shapes[step.shape]))
            x = g(step.operator, *((constant, x) if step.first else (x, constant)))
        if chain.read == number:
            results.append(g("Relu", x))
    return [*results, x]


@settings(max_examples=2, derandomize=True, phases=[Phase.generate])
@given(drawn=st.lists(chains, min_size=CHAINS, max_size=CHAINS))
def test_chains_compute_what_onnxruntime_does(
    drawn: list[Chain], cpu: tvm.target.Target, run_program: RunsProgram, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    g = Graph()
    results = [(result, chain) for chain in drawn for result in _add(g, chain)]
    shape = (BATCH, CHANNELS, ROWS, COLUMNS)
    path = g.save(tmp_path_factory.mktemp("chains") / "model.onnx", shape, [result for result, _ in results])
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    wanted = run_onnxruntime(path, x)
    found = run_program(assemble(lower(load(parse_ref(str(path))).module, cpu), {}, cpu), x)
    for one, other, (_, chain) in zip(found, wanted, results, strict=True):
        finite = np.abs(other[np.isfinite(other)])
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * finite.max(initial=0.0), err_msg=str(chain))
