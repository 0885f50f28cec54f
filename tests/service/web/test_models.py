from __future__ import annotations

import asyncio
import hashlib
import io
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import onnx
import pytest
from fastapi.testclient import TestClient
from onnx import TensorProto, helper

from kintune.service.access import Quota
from kintune.service.upload_inspection import memory_limit_mb
from kintune.service.web import models
from kintune.service.web.application_state import ApplicationState
from tests.support.service_users import dynamic_onnx, upload
from tests.support.web_service import NOW


@pytest.fixture
def anna(client: Callable[..., TestClient]) -> TestClient:
    return client("anna")


def problem(client: TestClient, data: bytes) -> str:
    answer = client.post("/api/v1/models", content=data)
    assert answer.status_code == 201
    return str(answer.json()["findings"]["problem"])


def test_an_upload_is_answered_with_what_it_is(anna: TestClient) -> None:
    found = anna.get(f"/api/v1/models/{upload(anna)}").json()
    assert found["name"] == "small"
    (one,) = found["findings"]["inputs"]
    assert one == {"name": "x", "shape": [None, 4], "dtype": "float32", "names": ["batch", ""]}
    assert found["findings"]["operators"] == {"Add": 1, "Relu": 1}
    assert found["findings"]["parameters"] == 4
    assert found["findings"]["problem"] == ""


def test_the_same_file_again_is_the_same_model(anna: TestClient) -> None:
    assert upload(anna) == upload(anna, name="other.onnx")
    assert [model["name"] for model in anna.get("/api/v1/models").json()["models"]] == ["other"]


def test_two_people_may_hand_in_the_same_file(
    anna: TestClient, client: Callable[..., TestClient], application: ApplicationState
) -> None:
    boris = client("boris")
    mine, theirs = upload(anna), upload(boris)
    assert mine != theirs
    assert anna.get(f"/api/v1/models/{theirs}").status_code == 404
    assert anna.delete(f"/api/v1/models/{mine}").status_code == 204
    assert boris.get(f"/api/v1/models/{theirs}").status_code == 200
    assert len(list(application.blobs.digests())) == 1


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "..\\..\\boot.ini", "/abs/net.onnx", "a\0b", "", "...", "x" * 256, "ünïcode.onnx"]
)
def test_a_name_leads_nowhere(anna: TestClient, application: ApplicationState, name: str) -> None:
    called = anna.get(f"/api/v1/models/{upload(anna, name=name)}").json()["name"]
    assert called
    assert not set(called) & set("/\\\0")
    outside = [path for path in application.settings.directory.parent.rglob("*") if path.is_file()]
    assert all(application.settings.directory in path.parents for path in outside)


def pickled() -> bytes:
    return pickle.dumps({"weights": [1, 2, 3]}, protocol=4)


def zipped() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("data.pkl", pickled())
    return data.getvalue()


def test_pickles_are_refused_before_anybody_reads_them(anna: TestClient) -> None:
    assert "PyTorch" in problem(anna, pickled())
    assert "PyTorch" in problem(anna, zipped())


def test_what_is_no_model_is_said_to_be_none(anna: TestClient) -> None:
    whole = dynamic_onnx().SerializeToString()
    for data in (b"", b"\x00" * 1000, b"hello, world" * 100, whole[: len(whole) // 2]):
        assert problem(anna, data)


def test_weights_in_other_files_are_refused(anna: TestClient, tmp_path: Path) -> None:
    model = dynamic_onnx()
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.append(onnx.StringStringEntryProto(key="location", value="../../../../etc/passwd"))
    assert "other files" in problem(anna, model.SerializeToString())


def test_weights_in_other_files_are_found_inside_attributes(anna: TestClient) -> None:
    model = dynamic_onnx()
    tensor = helper.make_tensor("c", TensorProto.FLOAT, [1], [0.0])
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.append(onnx.StringStringEntryProto(key="location", value="/etc/passwd"))
    model.graph.node.insert(0, helper.make_node("Constant", [], ["c"], value=tensor))
    assert "other files" in problem(anna, model.SerializeToString())


def test_graphs_nested_without_end_are_refused(anna: TestClient) -> None:
    def field(number: int, data: bytes) -> bytes:
        """A length-delimited field of protocol buffers."""
        length, size = b"", len(data)
        while size >= 128:
            length, size = length + bytes([size % 128 + 128]), size // 128
        return bytes([number * 8 + 2]) + length + bytes([size]) + data

    graph = b""
    for _ in range(2000):
        graph = field(1, field(5, field(6, graph)))  # a graph's node's attribute's graph
    assert problem(anna, field(7, graph))


def test_more_than_may_be_is_refused_and_nothing_of_it_kept(
    client: Callable[..., TestClient], application: ApplicationState
) -> None:
    small = client("small", quota=Quota(upload_mb=1))
    answer = small.post("/api/v1/models", content=b"\0" * ((1 << 20) + 1))
    assert answer.status_code == 413
    assert "1 MB" in answer.json()["error"]
    assert list(application.blobs.digests()) == []
    assert list((application.settings.content / "incoming").iterdir()) == []


def test_somebody_else_s_model_is_not_there(anna: TestClient, client: Callable[..., TestClient]) -> None:
    mine, boris = upload(anna), client("boris")
    assert boris.get(f"/api/v1/models/{mine}").status_code == 404
    assert boris.delete(f"/api/v1/models/{mine}").status_code == 404
    assert boris.get(f"/api/v1/models/{mine}").json() == boris.get("/api/v1/models/987654").json() | {
        "error": f"there is no model {mine}"
    }


def test_a_model_that_a_job_needs_stays(anna: TestClient) -> None:
    model = upload(anna)
    job = anna.post("/api/v1/jobs", json={"model": model, "wanted": {"shapes": {"x": [1, 4]}}}).json()["id"]
    refused = anna.delete(f"/api/v1/models/{model}")
    assert refused.status_code == 409
    assert job in refused.json()["error"]


def test_a_full_disk_is_said_to_be_full(
    anna: TestClient, application: ApplicationState, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kintune.service.blob_store.os.fsync", full)
    answer = anna.post("/api/v1/models", content=dynamic_onnx().SerializeToString())
    assert answer.status_code == 507
    assert "full" in answer.json()["error"]
    monkeypatch.undo()
    assert list(application.blobs.digests()) == []
    upload(anna)


def test_one_who_says_too_much_is_not_listened_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.onnx").write_bytes(dynamic_onnx().SerializeToString())
    monkeypatch.setattr(models, "_MOST_OUTPUT", 10)
    found = asyncio.run(models.inspect_upload(tmp_path / "net.onnx"))
    assert "findings of its inspection are too long" in found.problem


def test_what_is_no_model_is_kept_for_an_hour(anna: TestClient, application: ApplicationState) -> None:
    useless, useful = upload(anna, b"hello, world"), upload(anna)
    assert application.models.expire(application.now() + 3599) == []
    assert application.models.expire(application.now() + 3600) == [useless]
    assert anna.get(f"/api/v1/models/{useful}").status_code == 200


def inspected_by(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a shell script inspect uploads."""
    program = folder / "inspection"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


@pytest.mark.parametrize(
    ("script", "look_s", "said"),
    [
        (
            "exit 1",
            120.0,
            f"its inspection needs more than the {memory_limit_mb()} MB of memory that are allowed, or it is damaged",
        ),
        ("kill -XCPU $$", 120.0, "its inspection takes more time than is allowed"),
        ("exec sleep 600", 0.1, "its inspection took more than 0.1 seconds"),
    ],
)
def test_a_good_model_stays_one_when_another_inspection_fails(
    anna: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, look_s: float, said: str
) -> None:
    model = upload(anna)
    found = anna.get(f"/api/v1/models/{model}").json()
    monkeypatch.setattr(models, "_LOOK_S", look_s)
    inspected_by(script, tmp_path, monkeypatch)
    assert upload(anna) == model
    assert anna.get(f"/api/v1/models/{model}").json() == found
    assert anna.delete(f"/api/v1/models/{model}").status_code == 204
    assert upload(anna) == model
    assert anna.get(f"/api/v1/models/{model}").json() == found
    assert problem(anna, b"hello, world") == said


def test_an_inspection_that_cannot_be_started_is_named(
    anna: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = upload(anna)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    assert upload(anna) == model
    assert anna.get(f"/api/v1/models/{model}").json()["findings"]["problem"] == ""
    assert problem(anna, b"hello") == "its inspection could not be started (No such file or directory); upload it again"


def again(client: TestClient, data: bytes, name: str = "again.onnx") -> Any:
    """The answer to a file that is named by its content, and not sent."""
    answer = client.put(f"/api/v1/models/sha256/{hashlib.sha256(data).hexdigest()}", params={"name": name})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_model_that_is_stored_need_not_be_sent(
    anna: TestClient, application: ApplicationState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = dynamic_onnx().SerializeToString()
    before = anna.get(f"/api/v1/models/{upload(anna, data)}").json()
    later = NOW + 3 * 86400.0
    monkeypatch.setattr(application, "now", lambda: later)
    inspected_by("exit 1", tmp_path, monkeypatch)  # what was found to be good is not inspected again
    answer = again(anna, data)
    assert answer == {**before, "name": "again", "expires": before["expires"] + 3 * 86400.0}
    assert anna.get(f"/api/v1/models/{before['id']}").json() == answer
    note = application.audit_log.read()[0]
    assert (note.at, note.action, note.subject) == (later, "upload", f"model {before['id']}")
    details = {"sha256": before["sha256"], "size": len(data), "sent": False}
    assert msgspec.json.decode(note.details) == details


def test_a_model_with_a_problem_is_inspected_again(
    anna: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = dynamic_onnx().SerializeToString()
    with monkeypatch.context() as busy:
        inspected_by("exit 1", tmp_path, busy)
        model = upload(anna, data)
        assert again(anna, data)["expires"] == NOW + 3600.0
    answer = again(anna, data)
    assert (answer["id"], answer["findings"]["problem"]) == (model, "")
    assert answer["expires"] > NOW + 3600.0
    assert again(anna, data)["findings"] == answer["findings"]
