from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kintune.validate.plain_outputs import load_outputs, name_parts, save_outputs


@pytest.mark.parametrize(
    ("output", "numbers", "texts"),
    [
        ([{"cat": 0.5, "dog": 0.25}, {"cat": 1.0, "dog": 0.0}], [0.5, 0.25, 1, 0], ["cat", "dog", "cat", "dog"]),
        ({3: np.array([1.0, 2.0], np.float32)}, [3, 1, 2], []),
        ([np.array([[1, 2]]), np.array(["a"], object)], [1, 2], ["a"]),
        ([], [], []),
        (None, [], []),
        ([object(), {"a": {1}}], [], ["a"]),
    ],
)
def test_what_is_no_tensor_is_its_numbers_and_its_texts(
    tmp_path: Path, output: Any, numbers: list[float], texts: list[str]
) -> None:
    save_outputs(tmp_path / "o.npz", [np.array([True]), output])
    found = {name: array.tolist() for name, array in load_outputs(str(tmp_path / "o.npz")).items()}
    assert found == {"0": [True], "1 numbers": numbers, "1 texts": texts}
    assert name_parts(list(found), ["y", "z"]) == ["y", "z (numbers)", "z (texts)"]


def test_tensors_are_as_they_are(tmp_path: Path) -> None:
    import ml_dtypes

    short = np.array([1.5], ml_dtypes.bfloat16)
    save_outputs(tmp_path / "o.npz", [np.ones((2, 1), np.int8), short, np.array([["a", "bc"]], object)])
    found = list(load_outputs(str(tmp_path / "o.npz")).values())
    assert [(array.dtype.name, array.tolist()) for array in found] == [
        ("int8", [[1], [1]]), ("float32", [1.5]), ("str64", [["a", "bc"]]),
    ]  # fmt: skip


def test_a_file_has_the_outputs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written without `savez`, whose arguments are not the same in all versions of numpy."""
    monkeypatch.delattr(np, "savez")
    save_outputs(tmp_path / "o.npz", [np.ones(2), [1]])
    with zipfile.ZipFile(tmp_path / "o.npz") as archive:
        assert archive.namelist() == ["0.npy", "1 numbers.npy", "1 texts.npy"]
