from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from kintune.errors import ModelError

pytestmark = pytest.mark.tvm

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DIRECTIONS = ("forward", "reverse", "bidirectional")


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) / 2


def operands(
    cell: str, direction: str, steps: int, batch: int, hidden: int, *, given: str = "", features: int = 3
) -> list[Any]:
    """The operands of a layer; `given` says which optional ones: b(ias), l(engths), h, c."""
    d, rows = 2 if direction == "bidirectional" else 1, GATES[cell] * hidden
    lengths = np.array([(2 * i) % (steps + 1) for i in range(batch)], np.int32)
    optional = {
        "b": draw(d, 2 * rows, seed=3), "l": lengths, "h": draw(d, batch, hidden, seed=4),
        "c": draw(d, batch, hidden, seed=5),
    }  # fmt: skip
    found = [draw(steps, batch, features), draw(d, rows, features, seed=1), draw(d, rows, hidden, seed=2)]
    return found + [optional[name] if name in given else None for name in ("blhc" if cell == "LSTM" else "blh")]


@pytest.mark.parametrize("operands_given", [("", "bhc"), pytest.param(("b", "bh", "hc"), marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "cell", ["LSTM", *(pytest.param(cell, marks=pytest.mark.slow) for cell in GATES if cell != "LSTM")]
)
def test_directions_states_and_biases(compare: Any, make_case: Any, cell: str, operands_given: tuple[str, ...]) -> None:
    count = 3 if cell == "LSTM" else 2
    cases = []
    for direction, batch, given in itertools.product(DIRECTIONS, (1, 3), operands_given):
        values = operands(cell, direction, 4, batch, 5, given=given)
        extra = {"linear_before_reset": batch // 2} if cell == "GRU" else {}
        fixed = [1, 2, 3] if batch == 1 else ()
        cases.append(
            make_case(cell, *values, constant=fixed, outputs=count, direction=direction, hidden_size=5, **extra)
        )
    compare(cases, 14)


@pytest.mark.parametrize("cell", list(GATES))
@pytest.mark.parametrize("hidden", [20, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 64))])
def test_sizes(compare: Any, make_case: Any, cell: str, hidden: int) -> None:
    cases = [
        make_case(
            cell, *operands(cell, direction, 3, 2, hidden, given="bh"), constant=[1, 2, 3], direction=direction,
            hidden_size=hidden,
        )
        for direction in DIRECTIONS
    ]  # fmt: skip
    compare(cases, 14)


@pytest.mark.parametrize("cell", list(GATES))
def test_sequences_of_different_lengths(compare: Any, make_case: Any, cell: str) -> None:
    count = 3 if cell == "LSTM" else 2
    cases = [
        make_case(
            cell, *operands(cell, direction, 4, 3, 5, given="blhc"), constant=fixed, outputs=count, direction=direction,
            hidden_size=5,
        )
        for direction, fixed in itertools.product(DIRECTIONS, ((), (1, 2, 4)))
    ]  # fmt: skip
    compare(cases, 14)


def test_lengths_that_are_all_the_same_are_none(compare: Any, make_case: Any) -> None:
    values = operands("GRU", "reverse", 4, 2, 5, given="bl")
    values[4] = np.full(2, 4, np.int32)
    compare([make_case("GRU", *values, constant=[1, 2, 3, 4], direction="reverse", hidden_size=5)], 14)


@pytest.mark.parametrize("asked", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1)])
def test_outputs_that_are_left_out(compare: Any, make_case: Any, asked: tuple[int, ...]) -> None:
    values = operands("LSTM", "bidirectional", 4, 1, 5, given="b")
    compare([make_case("LSTM", *values, outputs=asked, direction="bidirectional", hidden_size=5)], 14)


def test_activations_of_an_rnn(compare: Any, make_case: Any) -> None:
    cases = [
        make_case("RNN", *operands("RNN", direction, 4, 2, 5, given="b"), outputs=2, direction=direction, hidden_size=5,
                  activations=[name] * (2 if direction == "bidirectional" else 1))
        for name, direction in itertools.product(("Relu", "Tanh"), DIRECTIONS)
    ]  # fmt: skip
    compare(cases, 14)


def test_batches_may_come_first(compare: Any, make_case: Any) -> None:
    values = operands("GRU", "bidirectional", 4, 3, 5, given="bh")
    plain = make_case("GRU", *values, outputs=2, direction="bidirectional", hidden_size=5)
    moved = [values[0].transpose(1, 0, 2), *values[1:5], values[5].transpose(1, 0, 2)]
    case = make_case("GRU", *moved, outputs=2, direction="bidirectional", hidden_size=5, layout=1)
    y, last = computed(plain)
    compare([case], 14, expected=[y.transpose(2, 0, 1, 3), last.transpose(1, 0, 2)])


def model_of(case: Any) -> Any:
    kinds = {name: helper.np_dtype_to_tensor_dtype(values.dtype) for name, values in case.inputs.items()}
    ports = [helper.make_tensor_value_info(name, kinds[name], values.shape) for name, values in case.inputs.items()]
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in case.node.output]
    weights = [numpy_helper.from_array(values, name) for name, values in case.constants.items()]
    graph = helper.make_graph([case.node], "g", ports, outputs, weights)
    domains = [helper.make_opsetid("", 14), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


def computed(case: Any) -> list[Any]:
    import onnxruntime

    return list(onnxruntime.InferenceSession(model_of(case).SerializeToString()).run(None, case.inputs))


ACTIVATIONS = {
    "LSTM": (
        ["HardSigmoid", "Softsign", "Relu"],
        ["Sigmoid", "LeakyRelu", "ScaledTanh"],
        ["Affine", "Elu", "Softplus"],
    ),
    "GRU": (["HardSigmoid", "Softsign"], ["Sigmoid", "ThresholdedRelu"]),
    "RNN": (["Relu"], ["Softplus"], ["Elu"]),
}
NUMBERS = {
    "activation_alpha": {
        "LeakyRelu": 0.3, "HardSigmoid": 0.3, "Affine": 0.7, "Elu": 0.5, "ScaledTanh": 1.3, "ThresholdedRelu": 0.1,
    },
    "activation_beta": {"HardSigmoid": 0.4, "Affine": 0.1, "ScaledTanh": 0.6},
}  # fmt: skip


@pytest.mark.parametrize("cell", list(GATES))
def test_activations(compare: Any, make_case: Any, cell: str) -> None:
    cases = []
    for names, direction, given in itertools.product(ACTIVATIONS[cell], ("reverse", "bidirectional"), ("b", "bl")):
        directions = 1 + (direction == "bidirectional")
        values = operands(cell, direction, 4, 2, 5, given=given)
        both = names if directions == 1 else [*names, *ACTIVATIONS[cell][-1]]  # each direction has its own
        numbers = {key: [own[name] for name in both if name in own] for key, own in NUMBERS.items()}
        more = {key: found for key, found in numbers.items() if found}
        cases.append(make_case(cell, *values, direction=direction, hidden_size=5, activations=both, **more))
    compare(cases, 14)


@pytest.mark.parametrize("cell", list(GATES))
def test_clipping(compare: Any, make_case: Any, cell: str) -> None:
    values = operands(cell, "bidirectional", 4, 2, 5, given="b")
    after = {"linear_before_reset": 1} if cell == "GRU" else {}
    cases = [
        make_case(cell, *values, direction="bidirectional", hidden_size=5, clip=clip, **more)
        for clip in (0.1, 0.6)
        for more in ({}, after)
    ]
    compare(cases, 14)


def test_coupled_input_and_forget_gates(compare: Any, make_case: Any) -> None:
    cases = []
    for direction, given in itertools.product(DIRECTIONS, ("bhc", "bl")):
        values = [*operands("LSTM", direction, 4, 3, 5, given=given), draw(1 + (direction == "bidirectional"), 15)]
        cases.append(
            make_case("LSTM", *values, outputs=3, direction=direction, hidden_size=5, input_forget=1, clip=0.9)
        )
    compare(cases, 14)


def test_an_activation_that_does_not_exist_is_refused(make_case: Any, tmp_path: Path) -> None:
    case = make_case(
        "LSTM", *operands("LSTM", "forward", 4, 1, 5), hidden_size=5, activations=["Sigmoid", "Sine", "Tanh"]
    )
    assert refused(case, tmp_path) == "activation sine is not supported"


def in_bytes(
    direction: str, hidden: int, dtype: Any, columns: bool, given: str = "bhc", features: int = 12
) -> list[Any]:
    """The operands of a DynamicQuantizeLSTM of one sequence; with scales and zero points of each column, or of all."""
    d, random = 1 + (direction == "bidirectional"), np.random.default_rng(7)
    limits = np.iinfo(dtype)
    plain = operands("LSTM", direction, 6, 1, hidden, given=given, features=features)
    shape = (d, 4 * hidden) if columns else (d,)
    point = np.full(shape, 178 if dtype == np.uint8 else 0, dtype)  # onnxruntime takes one value alone
    weights = [
        random.integers(limits.min, limits.max, (d, rows, 4 * hidden), dtype, endpoint=True)
        for rows in (features, hidden)
    ]
    scales = [random.uniform(0.002, 0.004, shape).astype(np.float32) for _ in range(2)]
    return [plain[0], *weights, *plain[3:], None, scales[0], point, scales[1], point]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_weights_in_bytes(compare: Any, make_case: Any, dtype: Any) -> None:
    """Equal but for rounding: data and states are quantised as onnxruntime does it."""
    cases = []
    for direction, columns in itertools.product(DIRECTIONS, (False, True)):
        values = in_bytes(direction, 20, dtype, columns)
        fixed = [at for at in (1, 2, 3, 8, 9, 10, 11) if values[at] is not None]
        cases.append(
            make_case(
                "DynamicQuantizeLSTM", *values, constant=fixed, outputs=3, domain="com.microsoft", direction=direction,
                hidden_size=20,
            )
        )  # fmt: skip
    compare(cases, 14)


def test_scales_of_weights_in_bytes_must_be_constants(make_case: Any, tmp_path: Path) -> None:
    case = make_case(
        "DynamicQuantizeLSTM", *in_bytes("forward", 20, np.uint8, False), domain="com.microsoft", hidden_size=20
    )
    assert refused(case, tmp_path) == "scales or zero points that the network computes are not supported"


def test_peepholes(compare: Any, make_case: Any) -> None:
    cases = []
    for direction, (given, fixed) in itertools.product(DIRECTIONS, (("bhc", (1, 2, 3, 7)), ("blhc", ()))):
        values = [*operands("LSTM", direction, 4, 3, 5, given=given), draw(1 + (direction == "bidirectional"), 15)]
        cases.append(make_case("LSTM", *values, constant=fixed, outputs=3, direction=direction, hidden_size=5))
    compare(cases, 14)


def test_peepholes_that_do_not_fit_are_refused(make_case: Any, tmp_path: Path) -> None:
    case = make_case("LSTM", *operands("LSTM", "forward", 4, 1, 5), draw(1, 10), hidden_size=5)
    assert refused(case, tmp_path) == "peepholes of shape (1, 10) do not fit 5 units in 1 directions"


def test_a_length_beyond_the_end_is_refused(make_case: Any, tmp_path: Path) -> None:
    values = operands("RNN", "forward", 4, 1, 5, given="l")
    values[4] = np.array([9], np.int32)
    case = make_case("RNN", *values, constant=[4], hidden_size=5)
    assert "9" in refused(case, tmp_path)


def refused(case: Any, folder: Path) -> str:
    """Why a case cannot be imported."""
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    path = folder / "m.onnx"
    path.write_bytes(model_of(case).SerializeToString())
    with pytest.raises(ModelError) as caught:
        load(parse_ref(str(path)))
    return str(caught.value).rpartition("cannot be imported: ")[2]
