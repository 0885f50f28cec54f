from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import pytest

from kintune.cli.serve import _url
from kintune.errors import InputError
from kintune.service.settings import ServiceSettings, settings_in

if TYPE_CHECKING:
    from tests.support.command import Kintune


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def serve(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kintune", "serve", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_port_that_somebody_has_is_refused_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ended = serve("--data", str(tmp_path / "data"), "--port", str(port))
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert f"--port {port}" in line
    assert "in use" in line


def test_an_address_that_is_not_this_machine_s_is_refused(tmp_path: Path) -> None:
    ended = serve("--data", str(tmp_path / "data"), "--host", "192.0.2.1", "--port", free_port())
    assert ended.returncode == 2
    assert "192.0.2.1" in ended.stderr


def test_nobody_else_is_let_in_before_anybody_has_a_token(tmp_path: Path) -> None:
    ended = serve("--data", str(tmp_path / "data"), "--host", "0.0.0.0", "--port", free_port())
    assert ended.returncode == 2
    assert "add-token" in ended.stderr


def test_a_host_that_is_no_name_is_refused(tmp_path: Path) -> None:
    ended = serve("--data", str(tmp_path / "data"), "--host", "a..b", "--port", free_port())
    assert ended.returncode == 2
    assert "'a..b' is no name of a machine" in ended.stderr


def test_a_service_is_served_from_where_it_is_kept(tmp_path: Path) -> None:
    """Otherwise its users and jobs would seem to be gone."""
    settings = ServiceSettings(data=str(tmp_path), database="postgresql+psycopg://kintune:secret@/tuning")
    settings.file.write_bytes(msgspec.json.encode(settings))
    ended = serve("--data", str(tmp_path), "--port", free_port())
    assert ended.returncode == 2
    assert "is kept in PostgreSQL; name it with --database" in ended.stderr
    assert "secret" not in ended.stderr
    settings.file.write_bytes(msgspec.json.encode(ServiceSettings(data=str(tmp_path))))
    ended = serve("--data", str(tmp_path), "--port", free_port(), "--database", "postgresql+psycopg://kintune@/tuning")
    assert ended.returncode == 2
    assert "is kept in files, not in PostgreSQL" in ended.stderr


def test_settings_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("{")
    ended = serve("--data", str(tmp_path), "--port", free_port())
    assert ended.returncode == 2
    assert "settings.json cannot be read" in ended.stderr


@pytest.mark.parametrize(
    "content", [b"{", b"\xff", b'{"data": "\xff"}', b'{"data": "\\u0000"}', b'{"more":' + b"[" * 5000, b"[]"]
)
def test_settings_of_any_content_are_read_or_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "settings.json").write_bytes(content)
    with pytest.raises(InputError, match=r"settings\.json cannot be read; remove it"):
        settings_in(tmp_path)


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:8190"), ("::1", "http://[::1]:8190"), ("a.example", "http://a.example:8190")],
)
def test_the_address_that_is_told_can_be_opened(host: str, url: str) -> None:
    assert _url(host, 8190) == url


def test_results_are_kept_until_they_are_deleted_unless_days_are_given(
    kintune: Kintune, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    served: list[ServiceSettings] = []

    def supervisor(settings: ServiceSettings, *_: object) -> SimpleNamespace:
        return SimpleNamespace(run=lambda: served.append(settings))

    monkeypatch.setattr("kintune.cli.serve.Supervisor", supervisor)
    usual = ("serve", "--data", tmp_path, "--part", "orchestrator")
    assert kintune(*usual).code == kintune(*usual, "--keep-results-days", "60").code == 0
    assert [settings.keep_results_days for settings in served] == [0.0, 60.0]
    assert kintune(*usual, "--keep-results-days", "-1").code == 2


def test_data_where_there_can_be_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a note")
    for data in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("a" * 300)):
        ended = serve("--data", str(data), "--port", free_port())
        assert ended.returncode == 2
        (line,) = ended.stderr.splitlines()
        assert "cannot be made a directory for data" in line


def test_a_port_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    ended = serve("--data", str(tmp_path), "--agents", f"127.0.0.1:{'9' * 5000}")
    assert ended.returncode == 2
    assert "must be HOST:PORT" in ended.stderr
