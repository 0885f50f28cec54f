from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.stand_in_client import StandInClient

if TYPE_CHECKING:
    from tests.support.command import Kintune


class FakeClient(StandInClient):
    """A service with two models and a set of inputs."""

    def __init__(self) -> None:
        self.deleted: list[tuple[str, int]] = []
        self.used = {"storage_mb": 93.5}

    def models(self, limit: int) -> list[dict[str, Any]]:
        broken = {"id": 1, "name": "broken", "size": 12, "expires": 86400.0, "findings": {"problem": "it is empty"}}
        return [{"id": 3, "name": "net", "size": 98_000_000, "expires": None, "findings": {"problem": ""}}, broken]

    def inputs(self, limit: int) -> list[dict[str, Any]]:
        return [{"id": 2, "name": "samples", "size": 4096, "expires": 86400.0, "arrays": []}]

    def delete_model(self, model: int) -> None:
        self.deleted.append(("model", model))

    def delete_inputs(self, inputs: int) -> None:
        self.deleted.append(("inputs", inputs))

    def user(self) -> dict[str, Any]:
        return {"name": "anna", "quota": {"storage_mb": 500}, "used": self.used}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    made = FakeClient()
    monkeypatch.setattr("kintune.cli.uploads.CommandClient", made)
    return made


def test_uploads_are_listed_newest_first(kintune: Kintune, service: FakeClient) -> None:
    said = kintune("uploads")
    assert said.code == 0
    assert [line.split()[:3] for line in said.out.splitlines()[1:-1]] == [
        ["3", "model", "net"],
        ["2", "inputs", "samples"],
        ["1", "model", "broken"],
    ]
    assert "cannot be used: it is empty" in said.out
    assert said.out.endswith("Your uploads take 93.5 of 500 MB.\n")
    assert service.deleted == []
    service.used = {"storage_mb": 120.0, "results_mb": 26.5}
    assert kintune("uploads").out.endswith(
        "Your uploads and results take 120.0 of 500 MB, of which 26.5 MB are results.\n"
    )


def test_uploads_are_deleted_by_their_numbers(kintune: Kintune, service: FakeClient) -> None:
    said = kintune("uploads", "--delete", "2", "--delete", "3", "--delete", "2", "--json", "-")
    assert service.deleted == [("inputs", 2), ("model", 3)]
    document = json.loads(said.out)
    assert ([each["id"] for each in document["models"]], document["inputs"], document["deleted"]) == ([1], [], [2, 3])
    assert (document["storage_mb"], document["most_mb"]) == (93.5, 500)


def test_what_is_not_there_is_not_deleted(kintune: Kintune, service: FakeClient) -> None:
    said = kintune("uploads", "--delete", "3", "--delete", "9")
    assert (said.code, said.out, service.deleted) == (2, "", [])
    assert "there is no upload 9" in said.err
