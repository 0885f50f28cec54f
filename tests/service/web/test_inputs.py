from __future__ import annotations

import hashlib
import io
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from kintune.service.access import Quota
from kintune.service.web.application_state import ApplicationState
from tests.support.service_users import upload
from tests.support.web_service import NOW


@pytest.fixture
def anna(client: Callable[..., TestClient]) -> TestClient:
    return client("anna")


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def hand_in(client: TestClient, data: bytes, name: str = "calibration/first.npz") -> int:
    answer = client.post("/api/v1/inputs", content=data, params={"name": name})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


def test_a_set_of_inputs_is_answered_with_what_it_holds(anna: TestClient) -> None:
    hand_in(anna, npz(x=np.zeros((1, 4), np.float32), ids=np.zeros(3, np.int64)))
    (found,) = anna.get("/api/v1/inputs").json()["inputs"]
    assert found["name"] == "first"
    assert found["arrays"] == [
        {"name": "x", "shape": [1, 4], "dtype": "float32", "names": []},
        {"name": "ids", "shape": [3], "dtype": "int64", "names": []},
    ]


def test_what_a_model_does_not_take_is_refused_when_it_is_sent_and_when_it_is_used(anna: TestClient) -> None:
    model = upload(anna)  # of x: float32 of [batch, 4]
    wrong, fine = npz(pixels=np.zeros(3, np.float32)), npz(x=np.zeros((2, 4), np.float32))
    said = "it has pixels, and the model takes x"
    for sent in range(2):
        answer = anna.post("/api/v1/inputs", content=wrong, params={"name": "wrong.npz", "model": model})
        assert (answer.status_code, answer.json()["error"]) == (422, f"wrong.npz: {said}"), sent
    assert anna.get("/api/v1/inputs").json()["inputs"] == []
    digest = hashlib.sha256(wrong).hexdigest()
    kept = hand_in(anna, wrong, "wrong.npz")
    again = anna.put(f"/api/v1/inputs/sha256/{digest}", params={"name": "wrong.npz", "model": model})
    assert (again.status_code, again.json()["error"]) == (422, f"wrong.npz: {said}")
    job = {"model": model, "wanted": {"inputs": [kept]}}
    refused = anna.post("/api/v1/jobs", json=job)
    assert (refused.status_code, refused.json()["error"]) == (422, f"the set of inputs {kept} (wrong): {said}")
    answer = anna.post("/api/v1/inputs", content=fine, params={"model": model})
    assert answer.status_code == 201
    job = {"model": model, "wanted": {"inputs": [answer.json()["id"]], "shapes": {"x": [2, 4]}}}
    assert anna.post("/api/v1/jobs", json=job).status_code == 201
    assert anna.post("/api/v1/inputs", content=fine, params={"model": 10**6}).status_code == 404


def test_arrays_count_unpacked_in_what_a_job_may_use(client: Callable[..., TestClient]) -> None:
    small = client("small", quota=Quota(upload_mb=1))
    model, sets = upload(small), list[int]()
    for name in ("one", "two"):
        buffer = io.BytesIO()
        np.savez_compressed(buffer, x=np.full((40_000, 4), len(name) + len(sets), np.float32))
        sets.append(hand_in(small, buffer.getvalue(), name))
    answer = small.post("/api/v1/jobs", json={"model": model, "wanted": {"inputs": sets}})
    assert answer.status_code == 422
    assert "take 1 MB, and you may use 1 MB" in answer.json()["error"]


@pytest.mark.parametrize("name", ["../../x", "a/../x", "x\\y", "x\n"])
def test_members_with_names_of_no_array_are_refused(anna: TestClient, name: str) -> None:
    array = io.BytesIO()
    np.save(array, np.zeros(1))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{name}.npy", array.getvalue())
    assert anna.post("/api/v1/inputs", content=buffer.getvalue()).status_code == 422


def test_an_array_that_holds_less_than_its_shape_says_is_refused(anna: TestClient) -> None:
    array = io.BytesIO()
    np.save(array, np.zeros((4, 4)))
    data = array.getvalue().replace(b"(4, 4)", b"(9, 9)")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x.npy", data)
    assert anna.post("/api/v1/inputs", content=buffer.getvalue()).status_code == 422


def test_inputs_are_no_models(anna: TestClient) -> None:
    inputs = hand_in(anna, npz(x=np.zeros(1)))
    assert anna.get("/api/v1/models").json()["models"] == []
    assert anna.get(f"/api/v1/models/{inputs}").status_code == 404
    assert anna.post("/api/v1/jobs", json={"model": inputs}).status_code == 404
    assert anna.delete(f"/api/v1/inputs/{upload(anna)}").status_code == 404


def test_inputs_can_be_forgotten(anna: TestClient, client: Callable[..., TestClient]) -> None:
    inputs = hand_in(anna, npz(x=np.zeros(1)))
    assert client("boris").delete(f"/api/v1/inputs/{inputs}").status_code == 404
    assert anna.delete(f"/api/v1/inputs/{inputs}").status_code == 204
    assert anna.get("/api/v1/inputs").json()["inputs"] == []


@pytest.mark.parametrize("data", [b"", b"nothing", npz(x=np.array([object()])), npz()])
def test_what_is_no_set_of_inputs_is_refused(anna: TestClient, data: bytes) -> None:
    answer = anna.post("/api/v1/inputs", content=data)
    assert answer.status_code == 422
    assert ".npz file" in answer.json()["error"]


def test_inputs_count_in_the_quota(client: Callable[..., TestClient]) -> None:
    small = client("small", quota=Quota(upload_mb=1))
    assert small.post("/api/v1/inputs", content=b"x" * (2 << 20)).status_code == 413
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npz(x=np.zeros(1))[:1] + b"0" * (8 << 20))
    assert "than the 1 MB that you may upload" in small.post("/api/v1/inputs", content=packed.getvalue()).text
    ids = [hand_in(small, npz(x=np.full((20_000, 4), number))) for number in range(2)]
    wanted = {"precision": "int8", "calibrate": ids}
    answer = small.post("/api/v1/jobs", json={"model": upload(small), "wanted": wanted})
    assert answer.status_code == 422
    assert "you may use 1 MB for a job" in answer.json()["error"]


def test_a_job_names_its_inputs(anna: TestClient, client: Callable[..., TestClient]) -> None:
    inputs, model = hand_in(anna, npz(x=np.zeros((1, 4), np.float32))), upload(anna)
    job = anna.post("/api/v1/jobs", json={"model": model, "wanted": {"precision": "int8", "calibrate": [inputs]}})
    assert job.status_code == 201, job.text
    assert job.json()["wanted"]["calibrate"] == [inputs]
    missing = anna.post("/api/v1/jobs", json={"model": model, "wanted": {"precision": "int8", "calibrate": [99]}})
    assert missing.status_code == 404
    assert missing.json()["error"] == "there is no set of inputs 99"
    boris = client("boris")
    theirs = {"model": upload(boris), "wanted": {"precision": "int8", "calibrate": [inputs]}}
    assert boris.post("/api/v1/jobs", json=theirs).status_code == 404


def test_a_directory_of_millions_of_arrays_is_not_read(anna: TestClient) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x.npy", b"")
    ended = buffer.getvalue()
    start = ended.index(b"PK\x01\x02")
    entry = ended[start : ended.index(b"PK\x05\x06")]
    entries = entry * 40_000
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 40_000, 40_000, len(entries), start, 0)
    answer = anna.post("/api/v1/inputs", content=ended[:start] + entries + end)
    assert answer.status_code == 422
    assert "not an .npz file of plain arrays" in answer.json()["error"]


def test_what_was_damaged_on_its_way_is_refused(anna: TestClient) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=np.arange(1000.0))
    data = bytearray(buffer.getvalue())
    data[60:80] = b"\xff" * 20
    assert anna.post("/api/v1/inputs", content=bytes(data)).status_code == 422


def test_what_a_job_needs_that_is_not_over_stays(anna: TestClient, application: ApplicationState) -> None:
    inputs, model = hand_in(anna, npz(x=np.zeros((1, 4), np.float32))), upload(anna)
    wanted = {"precision": "int8", "calibrate": [inputs]}
    job = anna.post("/api/v1/jobs", json={"model": model, "wanted": wanted}).json()["id"]
    answer = anna.delete(f"/api/v1/inputs/{inputs}")
    assert (answer.status_code, answer.json()["error"]) == (
        409,
        f"job {job} needs the set of inputs {inputs}; cancel it first",
    )
    assert application.models.expire(1e12) == []
    assert anna.post(f"/api/v1/jobs/{job}/cancel").status_code == 202


def test_a_set_that_is_stored_need_not_be_sent(
    anna: TestClient,
    client: Callable[..., TestClient],
    application: ApplicationState,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = npz(x=np.zeros((1, 4), np.float32))
    hand_in(anna, data)
    (before,) = anna.get("/api/v1/inputs").json()["inputs"]
    path = f"/api/v1/inputs/sha256/{hashlib.sha256(data).hexdigest()}"
    monkeypatch.setattr(application, "now", lambda: NOW + 86400.0)
    answer = anna.put(path, params={"name": "calibration/second.npz"})
    assert answer.status_code == 200
    assert answer.json() == {**before, "name": "second", "expires": before["expires"] + 86400.0}
    assert anna.get("/api/v1/inputs").json()["inputs"] == [answer.json()]
    assert [(note.action, note.subject) for note in application.audit_log.read()] == [
        ("upload", f"inputs {before['id']}")
    ] * 2
    assert client("boris").put(path).status_code == 404
    assert anna.put(path.replace("inputs", "models")).status_code == 404
    assert anna.delete(f"/api/v1/inputs/{before['id']}").status_code == 204
    assert anna.put(path).status_code == 404


def test_a_set_that_holds_more_than_may_be_by_now_is_refused(anna: TestClient, application: ApplicationState) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=np.zeros(1_000_000, np.float32))
    hand_in(anna, buffer.getvalue())
    application.users.change_user("anna", quota=Quota(upload_mb=1))
    answer = anna.put(f"/api/v1/inputs/sha256/{hashlib.sha256(buffer.getvalue()).hexdigest()}")
    assert answer.status_code == 422
    assert "than the 1 MB that you may upload" in answer.json()["error"]
