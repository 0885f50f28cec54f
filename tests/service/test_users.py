from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kintune.errors import InputError, StorageFull
from kintune.records.database import Database
from kintune.service.access import Forbidden, NotFound, Quota, Scope, Unauthorized
from kintune.service.users import Users, hash_of, looks_like_a_token, new_token

DAY = 86400.0


@pytest.fixture
def users(database: Database) -> Users:
    return Users(database)


def test_a_token_lets_its_owner_in(users: Users) -> None:
    anna = users.add_user("anna", 1.0, Quota(jobs=3))
    token = users.add_token(anna, "laptop", Scope.SUBMIT, 1.0, 2.0)
    visitor = users.visitor(token.text, DAY)
    assert (visitor.user, visitor.name, visitor.scope, visitor.quota.jobs) == (anna.id, "anna", Scope.SUBMIT, 3)
    (kept,) = users.tokens(anna)
    assert (kept.hint, kept.label, kept.used) == (token.hint, "laptop", DAY)


def test_a_token_is_good_on_a_full_disk_too(users: Users, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    token = users.add_token(users.add_user("anna", 1.0), "", Scope.SUBMIT, 1.0, None)

    def full(_connection: object) -> None:
        raise StorageFull("no space left")

    monkeypatch.setattr(database.system, "before_commit", full)
    assert users.visitor(token.text, 2.0).name == "anna"


def test_nobody_else_comes_in(users: Users) -> None:
    anna = users.add_user("anna", 1.0)
    token = users.add_token(anna, "", Scope.ADMIN, 1.0, None).text
    for text in ("", "kt_", token[:-1], token + "x", new_token().text, "Bearer " + token):
        with pytest.raises(Unauthorized, match="a valid token"):
            users.visitor(text, 2.0)


def test_tokens_expire_and_are_revoked(users: Users) -> None:
    anna = users.add_user("anna", 0.0)
    token = users.add_token(anna, "", Scope.READ, 0.0, 1.0)
    users.visitor(token.text, DAY - 1)
    with pytest.raises(Unauthorized):
        users.visitor(token.text, DAY)
    other = users.add_token(anna, "", Scope.READ, 0.0, None)
    users.revoke(users.tokens(anna)[1].id, 5.0)
    with pytest.raises(Unauthorized):
        users.visitor(other.text, 6.0)
    with pytest.raises(NotFound):
        users.revoke(99, 5.0)


def test_who_is_locked_out_stays_out_until_let_in(users: Users) -> None:
    anna = users.add_user("anna", 0.0)
    token = users.add_token(anna, "", Scope.READ, 0.0, None).text
    users.change_user("anna", disabled=True)
    with pytest.raises(Unauthorized):
        users.visitor(token, 1.0)
    users.change_user("anna", disabled=False, quota=Quota(minutes=5.0))
    assert users.visitor(token, 1.0).quota.minutes == 5.0


def test_the_database_never_sees_a_tokens_text(users: Users, database: Database) -> None:
    token = users.add_token(users.add_user("anna", 0.0), "", Scope.READ, 0.0, None)
    with database.snapshot() as connection:
        rows = [str(tuple(row)) for row in connection.exec_driver_sql("SELECT * FROM service_tokens")]
    assert rows
    assert all(token.text not in row for row in rows)


def test_names_are_plain_and_taken_once(users: Users) -> None:
    users.add_user("anna", 0.0)
    for name in ("anna", "", "Anna", "a b", "-a", "a" * 65, "../x"):
        with pytest.raises(InputError):
            users.add_user(name, 0.0)
    with pytest.raises(NotFound):
        users.user("nobody")


def test_it_is_known_whether_anybody_could_come_in(users: Users) -> None:
    assert not users.any_token()
    assert users.local(0.0).name == users.local(0.0).name == "local"
    users.add_token(users.add_user("anna", 0.0), "", Scope.READ, 0.0, 1.0)
    assert users.any_token()
    with pytest.raises(Unauthorized):
        users.local(0.0)


def test_a_scope_covers_those_below() -> None:
    assert Scope.ADMIN.covers(Scope.SUBMIT)
    assert Scope.SUBMIT.covers(Scope.READ)
    assert not Scope.READ.covers(Scope.SUBMIT)


def test_who_may_only_read_is_told_so(users: Users) -> None:
    token = users.add_token(users.add_user("anna", 0.0), "", Scope.READ, 0.0, None)
    with pytest.raises(Forbidden, match="this token may read; what was asked takes one that may submit"):
        users.visitor(token.text, 1.0).require(Scope.SUBMIT)


def test_a_machines_token_locks_nobody_out(users: Users) -> None:
    operator = users.add_user("operator", 0.0)
    users.add_token(operator, "board", Scope.MACHINE, 0.0, None)
    assert users.local(1.0).scope is Scope.ADMIN
    users.add_token(operator, "", Scope.READ, 0.0, None)
    with pytest.raises(Unauthorized):
        users.local(2.0)


def test_machines_and_people_may_do_nothing_that_is_the_others(users: Users) -> None:
    for scope in (Scope.READ, Scope.SUBMIT, Scope.ADMIN):
        assert not Scope.MACHINE.covers(scope)
        assert not scope.covers(Scope.MACHINE)
    assert Scope.MACHINE.covers(Scope.MACHINE)


def test_no_two_tokens_are_alike_and_their_text_is_not_kept() -> None:
    tokens = [new_token() for _ in range(50)]
    assert len({token.text for token in tokens}) == 50
    for token in tokens:
        assert looks_like_a_token(token.text)
        assert token.hash == hash_of(token.text)
        assert token.text not in token.hash
        assert token.text.startswith(token.hint)
        assert len(token.hint) < 12


def test_what_is_no_token_is_not_looked_up() -> None:
    for text in ("", "kt_", "kt_short", "x" * 46, new_token().text + "=", "kt_" + "é" * 43):
        assert not looks_like_a_token(text)


@pytest.mark.parametrize("quota", [Quota(jobs=-1), Quota(minutes=math.inf), Quota(minutes=math.nan)])
def test_a_quota_that_no_database_keeps_is_refused(database: Database, quota: Quota) -> None:
    users = Users(database)
    with pytest.raises(InputError, match="a quota has finite numbers"):
        users.add_user("boris", 1.0, quota)
    users.add_user("boris", 1.0)
    with pytest.raises(InputError, match="a quota has finite numbers"):
        users.change_user("boris", quota=quota)
    assert users.user("boris").quota == Quota()


@pytest.mark.parametrize("days", [0.0, -1.0, 1e9, math.inf, math.nan])
def test_a_token_lives_for_a_number_of_days_that_makes_sense(database: Database, days: float) -> None:
    users = Users(database)
    with pytest.raises(InputError, match="a token lives for more than 0"):
        users.add_token(users.add_user("anna", 1.0), "", Scope.READ, 1.0, days)


def test_who_come_first_at_the_same_time_are_one_user(database: Database) -> None:
    users, start = Users(database), threading.Barrier(8)

    def come(_: int) -> int:
        start.wait(timeout=60)
        return users.local(1.0).user

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(come, range(8)))) == 1
    with pytest.raises(InputError, match="there is a user 'local' already"):
        users.add_user("local", 2.0)
