"""How often a reference runs with noise."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kintune.core.stage_requests import ValidationContext, ValidationItem
from kintune.validate.baseline_protocol import BaselineTurn
from kintune.validate.input_sets import InputSets
from kintune.validate.plain_outputs import save_outputs
from kintune.validate.validation_run import ValidationRun


@pytest.mark.parametrize(
    ("with_noise", "runs"),
    [([np.ones(3), np.ones(2)], 1), ([np.ones(3), np.ones(1)], 3), ([np.ones(2), np.ones(1)], 3)],
    ids=["both shapes change", "one shape changes", "none does"],
)
def test_once_rounding_changes_all_shapes_it_need_not_run_again(
    tmp_path: Path, with_noise: list[Any], runs: int
) -> None:
    run: Any = ValidationRun.__new__(ValidationRun)
    run.directory, run.conditions, run.skipped = tmp_path, ValidationContext(threads=1), {}
    run.inputs = InputSets(ValidationItem("tuned.kt"), (), tmp_path)
    turns: list[BaselineTurn] = []

    def turn(order: BaselineTurn, seconds: float) -> None:
        turns.append(order)
        save_outputs(Path(str(order.outputs)), with_noise)

    save_outputs(Path(run.outputs_path("torch", 0)), [np.ones(2), np.ones(1)])
    samples = run.samples([SimpleNamespace(name="torch", turn=turn)], 0)
    assert [order.noise for order in turns] == list(range(1, runs + 1))
    assert len(samples) == runs
