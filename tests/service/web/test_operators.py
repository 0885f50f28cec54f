from __future__ import annotations

from collections.abc import Callable

from fastapi.testclient import TestClient

from kintune.service.access import Quota, Scope
from kintune.service.web.application_state import ApplicationState
from tests.support.service_users import upload


def test_a_user_is_given_other_quotas_and_locked_out(
    client: Callable[..., TestClient], application: ApplicationState
) -> None:
    root, anna = client("root", scope=Scope.ADMIN), client("anna", quota=Quota(jobs=5, minutes=60.0))
    answer = root.patch("/api/v1/users/anna", json={"minutes": 120.0, "storage_mb": 7})
    assert answer.status_code == 200
    assert answer.json()["quota"] == {"jobs": 5, "upload_mb": 2048, "minutes": 120.0, "storage_mb": 7}
    assert anna.get("/api/v1/me").json()["quota"]["minutes"] == 120.0
    assert root.patch("/api/v1/users/anna", json={"disabled": True}).json()["disabled"] is True
    assert anna.get("/api/v1/me").status_code == 401
    assert root.patch("/api/v1/users/anna", json={"disabled": False}).json()["quota"]["jobs"] == 5
    assert anna.get("/api/v1/me").status_code == 200
    actions = [(each.action, each.subject, each.details) for each in application.audit_log.read(limit=2)]
    assert actions == [
        ("change user", "anna", '{"disabled":false}'),
        ("change user", "anna", '{"disabled":true}'),
    ]


def test_only_an_admin_changes_users_and_only_as_makes_sense(client: Callable[..., TestClient]) -> None:
    root, anna = client("root", scope=Scope.ADMIN), client("anna")
    assert anna.patch("/api/v1/users/anna", json={"jobs": 1000}).status_code == 403
    assert root.patch("/api/v1/users/nobody", json={"jobs": 1}).status_code == 404
    for asked in ({"jobs": -1}, {"minutes": "many"}, {"name": "boris"}, {"jobs": 1 << 70}):
        assert root.patch("/api/v1/users/anna", json=asked).status_code == 422
    assert anna.get("/api/v1/me").json()["quota"]["jobs"] == Quota().jobs


def test_everybody_is_told_what_their_uploads_take(client: Callable[..., TestClient]) -> None:
    anna = client("anna")
    upload(anna, b"\0" * (3 << 19))
    assert anna.get("/api/v1/me").json()["used"] == {"storage_mb": 1.5, "results_mb": 0.0}
