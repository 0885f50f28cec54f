"""The release check: its steps, and what it makes of failures."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.tools.test_docs_site import tool

ROOT = Path(__file__).parents[2]


def test_databases_of_the_version_before_are_made_of_text(tmp_path: Path) -> None:
    check = tool("release_check")
    for script in sorted(check.OLD_DATABASES.glob("*.sql")):
        path = check.from_text(script, tmp_path / script.stem)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_a_command_that_fails_is_told_with_what_it_said(tmp_path: Path) -> None:
    check = tool("release_check")
    with pytest.raises(check.Failed, match=r"ended with code 3:\nnot so"):
        check.run(sys.executable, "-c", "import sys; print('not so'); sys.exit(3)", folder=tmp_path)
    assert check.run(sys.executable, "-c", "print(1)", folder=tmp_path) == "1\n"


def test_the_first_step_that_fails_ends_it(tmp_path: Path) -> None:
    (tmp_path / "kintune-0.1.0-py3-none-any.whl").write_bytes(b"")
    command = [sys.executable, ROOT / "tools" / "release_check.py", "--dist", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("build wheels and sources ... failed\n")
    assert "a wheel and a source of each package are expected" in done.stdout


def test_what_does_not_come_within_its_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    check = tool("release_check")
    monkeypatch.setattr(check, "PATIENCE_S", -1.0)
    with pytest.raises(check.Failed, match="nothing came of it"):
        check.wait_for(lambda: 1, bool)
    with pytest.raises(check.Failed, match="does not come up"):
        check.wait_for(lambda: 1, bool, lambda: True)


@pytest.mark.slow
@pytest.mark.needs("ziglang")
@pytest.mark.timeout(1500)
def test_a_release_can_be_made_of_what_is_here(tmp_path: Path) -> None:
    probe = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path), "click"]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("pip gets no packages here")
    command = [sys.executable, ROOT / "tools" / "release_check.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("can be released")
