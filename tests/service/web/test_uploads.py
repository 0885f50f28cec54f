from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
from fastapi.testclient import TestClient

from kintune.service.access import Quota
from kintune.service.web.application_state import ApplicationState
from tests.support.service_users import upload


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
        assert answer.json()["error"].startswith("your uploads take 0.6 of the 1 MB that you may keep")
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
        assert answer.json()["error"].startswith("your uploads take 1.0 of the 1 MB that you may keep")
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
    answer = client("none", quota=Quota(upload_mb=0)).post("/api/v1/models", content=b"\0")
    assert (answer.status_code, answer.json()["error"]) == (403, "you may not upload models")
