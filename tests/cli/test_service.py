from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from kintune.service.access import Quota
from kintune.service.audit_log import AuditLog
from kintune.service.database import open_database
from kintune.service.users import Users

if TYPE_CHECKING:
    from tests.support.command import Kintune


def test_the_quotas_of_a_user_are_changed(kintune: Kintune, tmp_path: Path) -> None:
    given = ("--data", tmp_path)
    assert kintune("service", "add-user", "anna", "--jobs", "5", "--minutes", "60", *given).code == 0
    said = kintune("service", "change-user", "anna", "--minutes", "120", "--storage-mb", "0", "--json", "-", *given)
    assert (said.code, said.err) == (0, "Changed anna.\n")
    (user,) = json.loads(said.out)["users"]
    assert user["quota"] == {"jobs": 5, "upload_mb": 2048, "minutes": 120.0, "storage_mb": 0}
    with closing(open_database(str(tmp_path / "service.sqlite"))) as database:
        assert Users(database).user("anna").quota == Quota(jobs=5, minutes=120.0, storage_mb=0)
        (noted, _) = AuditLog(database).read()
    assert (noted.action, noted.subject) == ("change user", "anna")


def test_a_change_of_nothing_or_nobody_is_refused(kintune: Kintune, tmp_path: Path) -> None:
    said = kintune("service", "change-user", "anna", "--data", tmp_path)
    assert said.code == 2
    assert "nothing is to be changed: give --jobs" in said.err
    said = kintune("service", "change-user", "anna", "--jobs", "1", "--data", tmp_path)
    assert said.code == 2
    assert "there is no user 'anna'" in said.err


def test_who_did_what_is_listed_newest_first(kintune: Kintune, tmp_path: Path) -> None:
    for name in ("anna", "boris"):
        assert kintune("service", "add-user", name, "--data", tmp_path).code == 0
    said = kintune("service", "audit", "--data", tmp_path, "--json", "-")
    assert said.err.splitlines()[0].split() == ["at", "(UTC)", "user", "action", "subject", "from"]
    listed = [line.split()[2:] for line in said.err.splitlines()[1:]]
    assert listed == [["add", "user", "boris"], ["add", "user", "anna"]]
    assert [entry["subject"] for entry in json.loads(said.out)["entries"]] == ["boris", "anna"]
    assert len(kintune("service", "audit", "--data", tmp_path, "--limit", "1").out.splitlines()) == 2


def test_numbers_larger_than_a_database_takes_are_one_line(kintune: Kintune, tmp_path: Path) -> None:
    for command in (("revoke", 10**30), ("audit", "--limit", 10**30)):
        said = kintune("service", *command, "--data", tmp_path)
        assert (said.code, said.err.count("\n")) == (2, 1), said
        assert "service.sqlite: a number is too large for a database" in said.err


def test_a_directory_that_cannot_be_is_one_line(kintune: Kintune, tmp_path: Path) -> None:
    for data in (tmp_path / ("a" * 300), "~no such user/data"):
        said = kintune("service", "users", "--data", data)
        assert (said.code, said.err.count("\n")) == (2, 1), said
        assert "there is no such directory" in said.err


def test_the_first_token_makes_the_data_directory(kintune: Kintune, tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    said = kintune("service", "add-token", "--data", data, "--user", "anna", "--scope", "admin")
    assert (said.code, said.out.startswith("kt_")) == (0, True), said
    assert f"{data} is a new data directory" in said.err
    assert data.stat().st_mode & 0o777 == 0o700
    assert "is a new" not in kintune("service", "add-user", "--data", data, "boris").err
