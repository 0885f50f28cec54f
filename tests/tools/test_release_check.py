"""The release check: its steps, and what it makes of failures."""

from __future__ import annotations

import http.server
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import kintune
from tests.tools.test_docs_site import tool

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, ROOT / "tools" / "release_check.py"]


def test_databases_of_the_version_before_are_made_of_text(tmp_path: Path) -> None:
    check = tool("release_check")
    for script in sorted(check.OLD_DATABASES.glob("*.sql")):
        path = check.from_text(script.read_text(), tmp_path / script.stem)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_the_steps_that_fail_are_told_in_the_last_line(tmp_path: Path) -> None:
    (tmp_path / "kintune-0.1.0-py3-none-any.whl").write_bytes(b"")
    done = subprocess.run([*COMMAND, "--dist", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("[1/8] look at the version and the changes (about ")
    last = done.stdout.splitlines()[-1]
    assert last.startswith("failed at 2 of 8, look at the files of the release: ")
    assert "a wheel and a source of each package are expected" in last


FILES = (
    *("kintune-{}-py3-none-any.whl", "kintune_runtime-{}-py3-none-manylinux_2_17_x86_64.whl"),
    *("kintune-{}.tar.gz", "kintune_runtime-{}.tar.gz"),
    "other_machines/kintune_runtime-{}-py3-none-manylinux_2_17_aarch64.whl",
)


def test_files_of_another_version_are_not_what_is_released(tmp_path: Path) -> None:
    check = tool("release_check")
    release = check.ReleaseCheck(tmp_path, tmp_path, [])
    (tmp_path / "other_machines").mkdir()
    for name in FILES:
        (tmp_path / name.format(kintune.__version__)).touch()
    assert "kintune_runtime" in release.build()
    for name in FILES:
        right, wrong = (tmp_path / name.format(f"{kintune.__version__}{more}") for more in ("", "0"))
        right.rename(wrong)
        with pytest.raises(check.Failed, match=f"are expected, of version {kintune.__version__}"):
            release.build()
        wrong.rename(right)
    right.unlink()
    with pytest.raises(check.Failed, match="other_machines holds nothing"):
        release.build()


@pytest.mark.parametrize(
    ("version", "top", "fits"),
    [
        ("0.1.1", "0.1.1, unreleased", True),
        ("0.1.1", "0.1.1", True),
        ("0.1.1", "0.1.10, unreleased", False),
        ("1.2.1", "1.2.1rc1, 2026-11-28", False),
    ],
)
def test_the_changes_must_begin_with_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, top: str, fits: bool
) -> None:
    check = tool("release_check")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n## {top}\n")
    (tmp_path / "src/kintune/core").mkdir(parents=True)
    (tmp_path / "src/kintune/core/version.py").write_text(f'__version__ = "{version}"\n')
    monkeypatch.setattr(check, "ROOT", tmp_path)
    release = check.ReleaseCheck(tmp_path, None, [])
    if fits:
        assert release.look().startswith(f"version {version}, ")
    else:
        with pytest.raises(check.Failed, match=f"the version is {version}, and the top section"):
            release.look()


def test_a_python_that_cannot_be_tried_is_refused_before_any_work(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\necho 3.9.18\n")
    old.chmod(0o755)
    for python, why in (
        (old, "is Python 3.9.18; a release is for 3.10 to 3.14"),
        (tmp_path / "none", "cannot be started"),
    ):
        done = subprocess.run([*COMMAND, "--python", python], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        (line,) = done.stdout.splitlines()
        assert line.startswith(f"release-check: --python {python}")
        assert why in line


def test_a_python_has_a_step_of_its_own(tmp_path: Path) -> None:
    check = tool("release_check")
    steps = check.ReleaseCheck(tmp_path, None, [], [Path(sys.executable)]).steps()
    version = sys.version.split()[0]
    assert steps[-1].what == f"Python {version}: install, compile, run"
    assert steps[1].what == "build wheels and sources"


def test_nothing_of_this_environment_reaches_what_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "KINTUNE_DEBUG", "KINTUNE_DATABASE", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, "here")
    monkeypatch.setenv("PIP_INDEX_URL", "there")
    check = tool("release_check").ReleaseCheck(tmp_path, None, [])
    assert "here" not in check.environment.values()
    assert check.environment["PIP_INDEX_URL"] == "there"
    assert check.environment["KINTUNE_RECORDS"].startswith(str(tmp_path))


def test_a_full_disk_is_told_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = tool("release_check")
    monkeypatch.setattr(check.shutil, "disk_usage", lambda folder: check.shutil._ntuple_diskusage(9, 9, 5 * 10**8))
    with pytest.raises(check.Failed, match=r"has 0\.5 GB free, 2\.1 are needed; TMPDIR names another folder"):
        check.check_space(tmp_path, 0)


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path == "/there"
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(b'{"token": "%s"}' % self.headers.get("Authorization", "").encode() if found else b"not here")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_service_is_asked_past_any_proxy_with_the_token(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check = tool("release_check")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    ask = check.Ask(address, "kt_1")
    assert ask("GET", "/there") == {"token": "Bearer kt_1"}
    with pytest.raises(check.Failed, match="GET /elsewhere: 404 not here"):
        ask("GET", "/elsewhere")
    assert not ask.ready()


def test_what_does_not_come_within_its_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    check = tool("release_check")
    monkeypatch.setattr(check, "PATIENCE_S", -1.0)
    with pytest.raises(check.Failed, match="nothing came of it"):
        check.wait_for(lambda: 1, bool)
    with pytest.raises(check.Failed, match="does not come up"):
        check.wait_for(lambda: 1, bool, lambda: True)


@pytest.mark.slow
@pytest.mark.needs("ziglang", "cyclonedx")
@pytest.mark.timeout(1800)
def test_a_release_can_be_made_of_what_is_here(tmp_path: Path) -> None:
    probe = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path), "click"]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("pip gets no packages here")
    done = subprocess.run([*COMMAND, "--python", sys.executable], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("can be released")
