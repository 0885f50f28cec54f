from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from kintune.service.access import Quota, Scope
from kintune.service.web.app import make_app
from kintune.service.web.application_state import ApplicationState
from tests.support.service_users import dynamic_onnx, upload


def incoming(application: ApplicationState) -> list[str]:
    return [path.name for path in (application.settings.content / "incoming").iterdir()]


def test_who_has_no_room_left_is_told_what_to_delete(
    client: Callable[..., TestClient], application: ApplicationState
) -> None:
    small = client("small", quota=Quota(storage_mb=1))
    model = upload(small, b"\0" * 600_000)
    for path in ("models", "inputs"):
        answer = small.post(f"/api/v1/{path}", content=b"\1" * 600_000)
        assert answer.status_code == 403
        assert answer.json()["error"].startswith("your uploads and results take 0.6 of the 1 MB that you may keep")
        assert f"/api/v1/{path}/ID" in answer.json()["error"]
    assert len(list(application.blobs.digests())) == 1
    assert small.delete(f"/api/v1/models/{model}").status_code == 204
    upload(small, b"\1" * 600_000)


def test_what_is_stored_is_accepted_again_without_any_room_left(
    client: Callable[..., TestClient], application: ApplicationState
) -> None:
    full = client("full", quota=Quota(storage_mb=1))
    packed = io.BytesIO()
    np.savez(packed, x=np.zeros(100_000, np.float32))
    inputs = full.post("/api/v1/inputs", content=packed.getvalue()).json()["id"]
    model = upload(full, b"\0" * ((1 << 20) - len(packed.getvalue())))
    assert application.models.storage(application.users.user("full").id).left == 0
    assert upload(full, b"\0" * ((1 << 20) - len(packed.getvalue())), name="again.onnx") == model
    again = full.post("/api/v1/inputs", content=packed.getvalue(), params={"name": "again.npz"})
    assert (again.status_code, again.json()["id"], again.json()["name"]) == (201, inputs, "again")
    for size in (1, 500_000, 1 << 20):  # shorter than what is stored, and longer
        answer = full.post("/api/v1/models", content=b"\1" * size)
        assert answer.status_code == 403
        assert answer.json()["error"].startswith("your uploads and results take 1.0 of the 1 MB that you may keep")
    assert full.delete(f"/api/v1/models/{model}").status_code == 204
    assert full.post("/api/v1/models", content=b"\1" * 700_000).status_code == 403
    assert (len(list(application.blobs.digests())), incoming(application)) == (2, [])


def test_nothing_is_kept_of_inputs_that_are_refused(
    client: Callable[..., TestClient], application: ApplicationState
) -> None:
    assert client("anna").post("/api/v1/inputs", content=b"nothing").status_code == 422
    assert list(application.blobs.digests()) == []
    assert incoming(application) == []


def test_who_may_upload_nothing_is_told_so(client: Callable[..., TestClient]) -> None:
    nobody = client("none", quota=Quota(upload_mb=0))
    for answer in (
        nobody.post("/api/v1/models", content=b"\0"),
        nobody.put(f"/api/v1/models/sha256/{'0' * 64}"),
    ):
        assert (answer.status_code, answer.json()["error"]) == (403, "you may not upload models")


def named(data: bytes, kind: str = "models") -> str:
    """The path that names a file by its content."""
    return f"/api/v1/{kind}/sha256/{hashlib.sha256(data).hexdigest()}"


def test_a_digest_opens_no_file_of_another_user(
    client: Callable[..., TestClient], application: ApplicationState
) -> None:
    data = dynamic_onnx().SerializeToString()
    model, boris = upload(client("anna"), data), client("boris")
    absent = boris.put(named(b"never uploaded"))
    assert absent.status_code == 404
    for other in (boris, client("admin", scope=Scope.ADMIN)):
        answer = other.put(named(data), params={"name": "mine"})
        assert (answer.status_code, answer.json()) == (404, absent.json())
        assert other.get("/api/v1/models").json()["models"] == []
    assert client("anna").get(f"/api/v1/models/{model}").json()["name"] == "small"
    assert [note.action for note in application.audit_log.read()] == ["upload"]


def test_a_reader_names_nothing(client: Callable[..., TestClient]) -> None:
    data = dynamic_onnx().SerializeToString()
    upload(client("anna"), data)
    assert client("anna", scope=Scope.READ).put(named(data)).status_code == 403


@pytest.mark.parametrize("digest", ["1", "A" * 64, "0" * 63, "0" * 65, "0" * 63 + "g"])
def test_what_is_no_digest_is_refused(client: Callable[..., TestClient], digest: str) -> None:
    assert client("anna").put(f"/api/v1/models/sha256/{digest}").status_code == 422


def test_what_is_gone_is_to_be_sent(client: Callable[..., TestClient], application: ApplicationState) -> None:
    anna, data = client("anna"), dynamic_onnx().SerializeToString()
    model = upload(anna, data)
    assert anna.put(named(data, "inputs")).status_code == 404
    application.blobs.remove(hashlib.sha256(data).hexdigest())
    answer = anna.put(named(data))
    assert (answer.status_code, answer.json()["error"]) == (
        404,
        "none of your models has this content; upload the file",
    )
    assert upload(anna, data) == model
    assert anna.put(named(data)).status_code == 200
    assert anna.delete(f"/api/v1/models/{model}").status_code == 204
    assert anna.put(named(data)).status_code == 404
    assert anna.get("/api/v1/models").json()["models"] == []


def test_what_is_larger_than_may_be_by_now_is_refused_unsent(
    client: Callable[..., TestClient], application: ApplicationState
) -> None:
    anna, data = client("anna"), b"\0" * (2 << 20)
    upload(anna, data)
    application.users.change_user("anna", quota=Quota(upload_mb=1))
    answer = anna.put(named(data))
    assert (answer.status_code, answer.json()["error"]) == (413, "the file is larger than the 1 MB that are allowed")


def test_an_upload_that_is_broken_off_is_no_error_of_the_service(application: ApplicationState) -> None:
    pieces = iter([{"type": "http.request", "body": b"\x08", "more_body": True}, {"type": "http.disconnect"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(pieces)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/api/v1/models", "raw_path": b"/api/v1/models", "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:8190")], "client": ("127.0.0.1", 50000), "server": ("127.0.0.1", 8190),
        "scheme": "http", "http_version": "1.1", "root_path": "",
    }  # fmt: skip
    asyncio.run(make_app(application)(scope, receive, send))
    assert sent[0]["status"] == 400
    assert list(application.blobs.digests()) == []
