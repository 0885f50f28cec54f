from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kintune.core.model import Combination, Tensor
from kintune.errors import InputError
from kintune.runtime import opening
from tests.support.toy_hybrid import X, expected, write_toy_hybrid

if TYPE_CHECKING:
    from tests.support.command import Kintune


_OPEN = opening.open


class Doubler:
    """Stands in for an executable: one input `x`, and an output that is twice as large."""

    def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        if set(inputs) != {"x"}:
            raise InputError("input 'x' is missing; the inputs are 'x'")
        return {"y/0": inputs["x"] * 2}


@pytest.fixture(autouse=True)
def _prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(opening, "open", lambda *_, **__: Doubler())
    np.savez("x.npz", x=np.array([[1.0, 2.0, 6.0]], dtype="float32"))


def test_outputs_are_described(kintune: Kintune) -> None:
    said = kintune("run", "m.kt", "--input", "x.npz")
    assert (said.code, said.out) == (0, "y/0: float32 1x3, min 2, mean 6, max 12\n")


def test_outputs_are_written_by_name(kintune: Kintune, tmp_path: Path) -> None:
    assert kintune("run", "m.kt", "--input", "x.npz", "--output", "y.npz").code == 0
    with np.load("y.npz") as written:
        assert {name: written[name].tolist() for name in written.files} == {"y/0": [[2.0, 4.0, 12.0]]}


def test_the_document_describes_the_outputs(kintune: Kintune) -> None:
    document = json.loads(kintune("run", "m.kt", "--input", "x.npz", "--json", "-").out)
    assert document["schema_version"] == 1
    assert document["outputs"][0] == {
        "name": "y/0", "shape": [1, 3], "dtype": "float32", "minimum": 2.0, "mean": 6.0, "maximum": 12.0,
        "input": None,
    }  # fmt: skip


class Classifier(Doubler):
    """The same, whose outputs are strings, a sequence of maps, and nothing."""

    def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {"label": np.array(["cat", "dog"], object), "scores": [{"cat": 0.5}, {"cat": 0.25}], "rest": None}


def test_what_no_file_holds_is_left_out(kintune: Kintune, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(opening, "open", lambda *_, **__: Classifier())
    said = kintune("run", "m.kt", "--input", "x.npz", "--output", "y.npz")
    assert said.out.splitlines() == [
        "label: string 2",
        "scores: sequence of 2",
        "rest: none",
        f"The outputs are in {tmp_path / 'y.npz'}, without scores, rest, which .npz files cannot hold",
    ]
    with np.load("y.npz") as written:
        assert {name: written[name].tolist() for name in written.files} == {"label": ["cat", "dog"]}


class Adder(Doubler):
    """The same, which says what its input is."""

    manifest = SimpleNamespace(combinations=(Combination((Tensor("x", (1, 3), "float32"),), ()),))

    def run(self, *inputs: Any) -> dict[str, Any]:  # type: ignore[override]
        return {"y/0": inputs[0] + 1}


def test_a_directory_of_inputs_gives_one_of_outputs(kintune: Kintune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "open", lambda *_, **__: Adder())
    Path("sets").mkdir()
    for name, value in (("b", 1.0), ("a", 2.0)):
        np.savez(f"sets/{name}.npz", x=np.full((1, 3), value, np.float32))
    said = kintune("run", "m.kt", "--input", "sets", "--output", "results", "--json", "d.json")
    assert said.code == 0
    found = {path.name: float(np.load(path)["y/0"][0, 0]) for path in Path("results").iterdir()}
    assert found == {"a.npz": 3.0, "b.npz": 2.0}
    outputs = json.loads(Path("d.json").read_text())["outputs"]
    assert [(output["input"], output["mean"]) for output in outputs] == [("a.npz", 3.0), ("b.npz", 2.0)]
    assert kintune("run", "m.kt", "--input", "sets").code == 0


@pytest.mark.parametrize(
    ("output", "wrong", "told"),
    [
        ("sets", None, "is the directory of the inputs"),
        ("x.npz", None, "is a file"),
        ("results", {"x": np.zeros((1, 2), np.float32)}, "b.npz: input 'x' has shape (1, 2)"),
        ("results", {"x": np.zeros((1, 3))}, "b.npz: input 'x' is float64"),
        ("results", {}, "b.npz: input 'x' is missing"),
        ("results", {"x": np.zeros((1, 3), np.float32), "z": np.zeros(1)}, "b.npz: no input is called 'z'"),
    ],
)
def test_a_directory_is_looked_at_before_anything_runs(
    kintune: Kintune, monkeypatch: pytest.MonkeyPatch, output: str, wrong: dict[str, Any] | None, told: str
) -> None:
    monkeypatch.setattr(opening, "open", lambda *_, **__: Adder())
    Path("sets").mkdir()
    np.savez("sets/a.npz", x=np.zeros((1, 3), np.float32))
    if wrong is not None:
        np.savez("sets/b.npz", **wrong)
    said = kintune("run", "m.kt", "--input", "sets", "--output", output)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert told in said.err
    assert not Path("results").exists()


def save_objects() -> None:
    np.savez("bad.npz", x=np.array([{}], dtype=object))


def save_unnamed() -> None:
    with open("bad.npz", "wb") as file:
        np.save(file, np.zeros(3))


def save_torn() -> None:
    Path("bad.npz").write_bytes(Path("x.npz").read_bytes()[:-30])


def save_text() -> None:
    Path("bad.npz").write_text("hello")


def save_misnamed() -> None:
    np.savez("bad.npz", z=np.zeros(3))


@pytest.mark.parametrize("save", [save_objects, save_unnamed, save_torn, save_text, save_misnamed])
def test_inputs_that_cannot_be_used_are_one_line(kintune: Kintune, save: Any) -> None:
    save()
    said = kintune("run", "m.kt", "--input", "bad.npz", "--output", "y.npz")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert not Path("y.npz").exists()


def test_an_input_file_is_required(kintune: Kintune) -> None:
    said = kintune("run", "m.kt")
    assert said.code == 2
    assert "--input" in said.err


def test_the_output_is_checked_before_anything_runs(kintune: Kintune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "open", lambda *_, **__: SimpleNamespace())
    assert kintune("run", "m.kt", "--input", "x.npz", "--output", "missing/y.npz").code == 2


@pytest.mark.tvm
def test_a_file_that_is_no_executable_is_one_line(kintune: Kintune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for arguments in (["run", "/nowhere/m.kt", "--input", __file__], ["evaluate", __file__]):
        said = kintune(*arguments)
        assert (said.code, said.err.count("\n")) == (2, 1)


def test_what_runs_partly_in_onnxruntime_runs(
    kintune: Kintune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "open", _OPEN)
    path = write_toy_hybrid(tmp_path)
    np.savez("ramp.npz", x=X)
    assert kintune("run", path, "--input", "ramp.npz", "--output", "out.npz").code == 0
    np.testing.assert_array_equal(np.load("out.npz")["out"], expected(X))
    np.savez("short.npz", x=X[:7])
    said = kintune("run", path, "--input", "short.npz")
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert "input 'x' has shape (7,), (1000,) is needed" in said.err
