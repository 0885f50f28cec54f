from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kintune.validate.plain_outputs import save_outputs
from kintune_lab.comparison.output_errors import REFERENCE, OutputErrors


def written(errors: OutputErrors, name: str, *values: float) -> None:
    """The runtime of this name has carried out its orders: a value for each set, the last one first."""
    for turn, value in zip(errors.turns(name), values, strict=True):
        assert turn.outputs is not None
        save_outputs(Path(turn.outputs), [np.full((2, 2), value, np.float32)])


def test_the_largest_error_of_all_sets_counts(tmp_path: Path) -> None:
    errors = OutputErrors(("a.npz", "b.npz"), tmp_path)
    assert [turn.inputs for turn in errors.turns("onnxruntime")] == ["b.npz", "a.npz"]
    written(errors, REFERENCE, 2.0, 1.0)
    written(errors, "onnxruntime", 2.5, 1.01)
    assert errors.of("onnxruntime") == pytest.approx(0.25)


def test_what_has_not_run_has_no_error(tmp_path: Path) -> None:
    errors = OutputErrors((None,), tmp_path)
    assert [turn.inputs for turn in errors.turns("kintune")] == [None]
    written(errors, REFERENCE, 2.0)
    assert errors.of("kintune") is None
