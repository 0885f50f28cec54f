"""Programs of every form in the reference: how they take their inputs, and what they return beside tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kintune.validate.baselines import BaselineModel
from kintune.validate.baselines.torch_compile import TorchCompile
from tests.support.tools import require

torch = require("torch")
pytestmark = pytest.mark.filterwarnings("ignore:::torch.*")

X, Y = np.array([1.0, -2.0], np.float32), np.array([3.0, 4.0], np.float32)


class Network(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.forward = function


def outputs_of(
    function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], directory: Path, **inputs: Any
) -> list[Any]:
    """What the reference computes of the exported function; inputs go by the names that the program gives them."""
    program = torch.export.export(Network(function), arguments, keywords)
    torch.export.save(program, directory / "network.pt2")
    baseline = TorchCompile(exact=True)
    baseline.prepare(BaselineModel(exported=str(directory / "network.pt2")), 1, inputs)
    return [output.tolist() for output in baseline.run()]


def test_what_is_no_tensor_is_no_output(tmp_path: Path) -> None:
    def forward(x: Any) -> Any:
        return {"sum": x.sum(), "nothing": None, "size": 2, "twice": (x * 2, 0.5)}

    assert outputs_of(forward, (torch.zeros(2),), {}, tmp_path, x=X) == [-1.0, [2.0, -4.0]]


def test_inputs_may_be_given_by_keyword(tmp_path: Path) -> None:
    def forward(x: Any, *, y: Any) -> Any:
        return x - y

    x, y = torch.zeros(2), torch.zeros(2)
    assert outputs_of(forward, (x,), {"y": y}, tmp_path, x=X, y=Y) == [[-2.0, -6.0]]
    assert outputs_of(forward, (), {"y": y, "x": x}, tmp_path, x=X, y=Y) == [[-2.0, -6.0]]


def test_inputs_may_be_nested_and_may_be_numbers(tmp_path: Path) -> None:
    def forward(pair: Any, factor: int, named: Any, absent: Any = None) -> Any:
        return pair[0] * factor - pair[1] - named["z"]

    arguments = ((torch.zeros(2), torch.zeros(2)), 3, {"z": torch.zeros(2)}, None)
    names = {"pair_0": X, "pair_1": Y, "named_z": X}
    assert outputs_of(forward, arguments, {}, tmp_path, **names) == [[-1.0, -8.0]]
