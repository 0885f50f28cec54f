from __future__ import annotations

from pathlib import Path

import pytest

from kintune.errors import EngineError, ModelError
from kintune_lab.bench.imports import check_imports, import_models
from kintune_lab.experiment.experiment import ModelFacts
from kintune_lab.spec.errors import SpecError


def test_the_first_model_that_cannot_be_imported_is_named_with_its_line() -> None:
    def importer(text: str) -> ModelFacts:
        if text == "b.onnx":
            raise ModelError("b.onnx: operators that cannot be imported: Magic x1")
        return ModelFacts(1, 1, 1.0)

    where = 's.toml:4: model = "b.onnx": '
    with pytest.raises(SpecError, match=r"s.toml:4: model = .b.onnx.: cannot be imported: b.onnx: operators"):
        check_imports(["a.onnx", "b.onnx"], importer, {"b.onnx": where})
    assert check_imports(["a.onnx"], importer, {}) == {"a.onnx": ModelFacts(1, 1, 1.0)}


def test_an_import_that_crashes_is_refused_as_well() -> None:
    def importer(text: str) -> ModelFacts:
        raise EngineError("the process ended without an answer")

    with pytest.raises(SpecError, match="ended without an answer"):
        check_imports(["a.onnx"], importer, {})


def test_without_models_no_process_is_started() -> None:
    def say(line: str) -> None:
        raise AssertionError(line)

    assert import_models([], say, {}) == {}


@pytest.mark.tvm
def test_models_are_imported_by_the_tuner_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.tiny_network import make_tiny_network

    path = str(make_tiny_network(tmp_path).onnx)
    said: list[str] = []
    facts = import_models([path], said.append, {})
    assert facts[path].tunable >= 1
    assert facts[path].flops > 2 * 4 * 48 * 48
    assert said == [f"importing {path}"]
    (tmp_path / "damaged.onnx").write_bytes(b"\x08\x09no graph")
    damaged = str(tmp_path / "damaged.onnx")
    with pytest.raises(SpecError, match=r"s.toml:7: .*damaged.onnx"):
        import_models([path, damaged], said.append, {damaged: "s.toml:7: "})
