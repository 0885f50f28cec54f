from __future__ import annotations

from collections.abc import Callable

from fastapi.testclient import TestClient

from kintune.service.access import Quota
from kintune.service.web.application_state import ApplicationState
from tests.support.service_users import upload


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


def test_nothing_is_kept_of_inputs_that_are_refused(
    client: Callable[..., TestClient], application: ApplicationState
) -> None:
    assert client("anna").post("/api/v1/inputs", content=b"nothing").status_code == 422
    assert list(application.blobs.digests()) == []
    assert list((application.settings.content / "incoming").iterdir()) == []


def test_who_may_upload_nothing_is_told_so(client: Callable[..., TestClient]) -> None:
    answer = client("none", quota=Quota(upload_mb=0)).post("/api/v1/models", content=b"\0")
    assert (answer.status_code, answer.json()["error"]) == (403, "you may not upload models")
