"""Options of `kintune worker start` and `kintune device start`: errors come in one line before anything is measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from kintune.cli.agents import agent_url, token_of
from kintune.errors import InputError

if TYPE_CHECKING:
    from tests.support.command import Kintune

TOKEN = "kt_" + 43 * "a"
PI = ("device", "start", "--service", "here:1", "--type", "pi")
A_CPU = ("--target", "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu", "--threads", "4")


@pytest.mark.parametrize(
    ("service", "url"),
    [
        ("here:8191", "ws://here:8191/api/v1/agents"),
        ("ws://here:8191", "ws://here:8191/api/v1/agents"),
        ("https://tuning.example.org", "wss://tuning.example.org/api/v1/agents"),
        ("wss://[::1]:8191/", "wss://[::1]:8191/api/v1/agents"),
        ("wss://here/api/v1/agents", "wss://here/api/v1/agents"),
    ],
)
def test_urls_of_services(service: str, url: str) -> None:
    assert agent_url(service) == url


@pytest.mark.parametrize("service", ["", "ftp://here", "here:many", "ws://", "ws://here/somewhere"])
def test_what_is_no_address(service: str) -> None:
    with pytest.raises(InputError, match="is not an address; give HOST:PORT"):
        agent_url(service)


def test_a_token_lies_in_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert token_of(str(file)) == TOKEN
    monkeypatch.setenv("KINTUNE_AGENT_TOKEN", TOKEN)
    assert token_of(None) == TOKEN


@pytest.mark.parametrize("text", ["", "two words", "\n"])
def test_a_file_without_a_token(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(InputError, match="holds no token; make one on the service's machine with: kintune service"):
        token_of(str(file))


def test_no_file_and_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KINTUNE_AGENT_TOKEN", raising=False)
    with pytest.raises(InputError, match=r"\$KINTUNE_AGENT_TOKEN: holds no token"):
        token_of(None)
    with pytest.raises(InputError, match="cannot be read"):
        token_of(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("device", "start", "--service", "here:1"), "Missing option '--type'"),
        (("worker", "start"), "Missing option '--service'"),
        (("worker", "start", "--service", "here:1", "--cores", "4096"), "--cores 4096: this process may use"),
        (("worker", "start", "--service", "nowhere at all"), "is not an address"),
        (("device", "start", "--service", "here:1", "--type", "pi", "--device", "gpu"), "device 'gpu'"),
        (("device", "start", "--service", "here:1", "--type", "pi", "--device", "cpu:4096"), "there is no core 4096"),
        ((*PI, "--rpc", "127.0.0.1:9090"), "name its CPU and its cores, for instance with --target 'llvm"),
        ((*PI, "--rpc", "127.0.0.1:9090", "--target", "llvm"), "name its CPU and its cores"),
        ((*PI, "--rpc", "board:9090", *A_CPU), "is not on this machine's loopback"),
        ((*PI, "--rpc", "9090", *A_CPU), "name it as HOST:PORT, or as HOST:PORT/KEY"),
        ((*PI, "--rpc", "127.0.0.1:9090", *A_CPU, "--device", "cpu:0"), "leave --device and --urgent out"),
        ((*PI, "--threads", "4"), "--threads is for --rpc"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(kintune: Kintune, arguments: tuple[str, ...], said: str) -> None:
    ended = kintune(*arguments)
    assert ended.code == 2
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("command", [("worker", "start", "--service", "here:1"), PI])
def test_a_token_is_missed_before_the_cores_are_waited_for(
    kintune: Kintune, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    def wait(*_: object) -> NoReturn:
        raise AssertionError("it waits for the cores")

    monkeypatch.delenv("KINTUNE_AGENT_TOKEN", raising=False)
    monkeypatch.setattr("kintune.hardware.locks.DeviceLock.acquire", wait)
    ended = kintune(*command)
    assert ended.code == 2
    assert "holds no token" in ended.err
