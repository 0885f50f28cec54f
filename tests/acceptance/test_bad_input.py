"""What is wrong with what was handed in, said by the real command: one line, exit code 2, nothing half-written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from sqlalchemy import update

from kintune.records import Store
from kintune.records.integrity import sealed
from kintune.records.schema import meta
from kintune.testing.small_onnx import write_small_onnx

if TYPE_CHECKING:
    from tests.acceptance.conftest import Place


def refused(place: Place, *arguments: object) -> str:
    """The one line with which the command refuses its arguments."""
    before = {path.name for path in place.folder.iterdir()}
    command = place.start(*arguments, name="refused")
    assert command.wait() == 2, command.err
    complaints = [line for line in command.err.splitlines() if line.startswith("kintune: error: ")]
    assert len(complaints) == 1, command.err
    assert command.err.splitlines()[-1] == complaints[0]
    assert "Traceback" not in command.err
    left = {path.name for path in place.folder.iterdir()} - before
    kept = {"refused.out", "refused.err", "locks", "state", "cache"}
    more = [name for name in left - kept if not name.startswith("records.sqlite")]
    assert [name for name in more if not name.endswith(".report.json")] == []  # what failed is reported, too
    return complaints[0]


@pytest.mark.tvm
class TestOfTheModel:
    def test_an_operator_that_cannot_be_imported(self, empty_place: Place) -> None:
        write_small_onnx(empty_place.folder / "odd.onnx", operator="Wobble")
        said = refused(empty_place, "tune", "odd.onnx", "--trials", 4, "--quiet")
        assert "odd.onnx" in said
        assert "Wobble x1" in said
        assert empty_place.query("SELECT state FROM runs") == [("failed",)]

    def test_an_unknown_target(self, empty_place: Place) -> None:
        assert "'z80'" in refused(empty_place, "tune", "small.onnx", "--target", "z80", "--trials", 4, "--quiet")
        assert empty_place.query("SELECT run_id FROM runs") == []

    def test_a_truncated_model(self, empty_place: Place) -> None:
        data = empty_place.model.read_bytes()
        Path(empty_place.folder, "short.onnx").write_bytes(data[: len(data) // 2])
        assert "short.onnx" in refused(empty_place, "tune", "short.onnx", "--trials", 4, "--quiet")

    def test_inputs_of_another_model(self, empty_place: Place) -> None:
        np.savez(empty_place.folder / "x.npz", strange=np.zeros(3, np.float32))
        said = refused(empty_place, "tune", "small.onnx", "--input", "x.npz", "--trials", 4, "--quiet")
        assert "'strange'" in said
        assert not empty_place.records.exists()


@pytest.mark.tvm
class TestOfIndices:
    def test_an_index_out_of_range_when_a_network_runs(self, empty_place: Place) -> None:
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        nodes = [
            helper.make_node("Gather", ["table", "ids"], ["words"], "words"),
            helper.make_node("Add", ["place", "place"], ["twice"]),
            helper.make_node("Gather", ["table", "twice"], ["places"], "places"),
            helper.make_node("Add", ["words", "places"], ["y"]),
        ]
        graph = helper.make_graph(
            nodes,
            "lookups",
            [helper.make_tensor_value_info(name, TensorProto.INT64, [2]) for name in ("ids", "place")],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
            [numpy_helper.from_array(np.ones((7, 3), np.float32), "table")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, empty_place.folder / "lookups.onnx")
        command = empty_place.start("compile", "lookups.onnx", "--output", "l.kt", "--quiet", name="compile")
        assert command.wait() == 0, command.err
        for ids, place, named in (([0, 7], [0, 3], "'ids'"), ([0, 6], [0, 4], "Gather 'places'")):
            np.savez(empty_place.folder / "x.npz", ids=np.array(ids), place=np.array(place))
            said = refused(empty_place, "run", "l.kt", "--input", "x.npz")
            assert named in said
            assert str(max(ids[1], 2 * place[1])) in said
            assert "7 e" in said
        np.savez(empty_place.folder / "x.npz", ids=np.array([0, -7]), place=np.array([3, -1]))
        command = empty_place.start("run", "l.kt", "--input", "x.npz", name="good")
        assert command.wait() == 0, command.err


class TestOfFiles:
    def test_an_output_that_cannot_be_written(self, empty_place: Place) -> None:
        assert "missing" in refused(empty_place, "tune", "small.onnx", "--output", "missing/a.kt", "--quiet")

    def test_records_that_are_no_database(self, empty_place: Place) -> None:
        empty_place.records.write_text("these are no records, but a note to myself" * 100)
        assert "records.sqlite" in refused(empty_place, "tune", "small.onnx", "--quiet")

    def test_records_of_a_newer_version(self, empty_place: Place) -> None:
        with Store.open(empty_place.records) as store, store.transaction() as connection:
            row = sealed(meta, key="schema_version", value="999")
            connection.execute(update(meta).where(meta.c.key == "schema_version").values(**row))
        assert "999" in refused(empty_place, "tune", "small.onnx", "--quiet")

    def test_a_saved_file_that_is_none(self, empty_place: Place) -> None:
        Path(empty_place.folder, "a.kt").write_bytes(b"PK\x03\x04 but not really")
        Path(empty_place.folder, "x.npz").write_bytes(b"PK\x03\x04")
        assert refused(empty_place, "run", "a.kt", "--input", "x.npz")
