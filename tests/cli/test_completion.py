"""Completion: by the protocol that shells use, and in the shells themselves."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kintune.cli.completion import VARIABLE, script_for
from kintune.cli.options import POLICY_NAMES
from kintune.models import zoo
from kintune.records import RunState, Store
from kintune.scheduler.policies import POLICIES


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder at the front of the path with `kintune`; the working directory has a model and a folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "kintune"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kintune "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    work = tmp_path / "work"
    (work / "nets").mkdir(parents=True)
    (work / "model.onnx").touch()
    (work / "my net.onnx").touch()
    monkeypatch.chdir(work)
    return folder


def asked(line: str, shell: str = "bash") -> list[str]:
    """What is offered for a line, by the protocol of a shell."""
    words = line.split()
    current = "" if line.endswith(" ") else words[-1]
    variables = {
        "bash": {"COMP_WORDS": line},
        "zsh": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - (current != ""))},
        "fish": {"COMP_WORDS": line, "COMP_CWORD": current},
    }[shell]
    done = subprocess.run(
        [sys.executable, "-m", "kintune"],
        env={**os.environ, VARIABLE: f"{shell}_complete", **variables},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_commands_are_offered() -> None:
    assert asked("kintune t") == ["plain,tune"]
    assert asked("kintune rec") == ["plain,records"]
    assert {"plain,list", "plain,show"} <= set(asked("kintune records "))
    assert asked("kintune fam") == ["plain,families"]


def test_options_are_offered() -> None:
    assert "plain,--minutes" in asked("kintune tune --mi")
    assert asked("kintune tune --fore") == ["plain,--foresee"]
    assert asked("kintune tune --foresee gu") == ["plain,guarded"]
    assert asked("kintune tune --foresee=gu") == ["plain,guarded"]
    assert asked("kintune export a.kt out --to w") == ["plain,wheel"]
    assert asked("kintune tune --policy pre") == asked("kintune serve --policy pre") == ["plain,predictive"]
    assert asked("kintune jobs --state can") == ["plain,cancelled"]
    assert tuple(POLICIES) == POLICY_NAMES


def test_models_are_offered() -> None:
    names = [f"plain,zoo:{name}" for name in zoo.names()]
    assert asked("kintune tune zoo:") == names
    assert set(asked("kintune tune zoo:resnet1")) == {"plain,zoo:resnet18", "plain,zoo:resnet152"}
    assert asked("kintune tune ") == ["file,"]
    assert asked("kintune tune z") == [*names, "file,z"]
    assert asked("kintune profile a.kt --model zoo:gpt") == ["plain,zoo:gpt2"]


def test_files_and_folders_are_left_to_the_shell() -> None:
    assert asked("kintune run mod") == ["file,mod"]
    assert asked("kintune tune zoo:gpt2 --output mod") == ["file,mod"]
    assert asked("kintune export a.kt ou") == ["dir,ou"]
    assert asked("kintune submit zoo:") == ["file,zoo:"]  # a service takes files


def test_runs_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINTUNE_RECORDS", str(tmp_path / "r.sqlite"))
    assert asked("kintune records show a") == ["file,a"]
    with Store.open(str(tmp_path / "r.sqlite")) as store:
        for run_id in ("abc1", "abd2"):
            store.runs.create(run_id, key=run_id, model_name="net")
            store.runs.update(run_id, state=RunState.FAILED)
    assert set(asked("kintune records show ab")) == {"plain,abc1", "plain,abd2", "file,ab"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_told_what_it_is(shell: str) -> None:
    said = "\n".join(asked("kintune t", shell))
    assert "tune" in said
    assert "Make a model fast on this machine." in said
    assert "zoo:gpt2" in "\n".join(asked("kintune tune zoo:gp", shell))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script(shell: str, kintune: object) -> None:
    said = kintune("completion", shell)  # type: ignore[operator]
    assert (said.code, said.out, said.err) == (0, script_for(shell), "")
    assert VARIABLE in said.out


def test_another_shell_is_wrong_input(kintune: object) -> None:
    said = kintune("completion", "ksh")  # type: ignore[operator]
    assert said.code == 2
    assert said.err.count("\n") == 1


class Terminal:
    """A shell in a pseudo-terminal."""

    def __init__(self, *command: str) -> None:
        self._pid, self._file = pty.fork()
        if self._pid == 0:
            os.environ.update(PS1="READY> ", TERM="dumb")
            os.execvp(command[0], command)
        self.said = ""

    def type(self, text: str, until: str) -> str:
        """Type a text, and return what the terminal has shown since, once it shows `until`."""
        seen = len(self.said)
        os.write(self._file, text.encode())
        end = time.monotonic() + 60
        while until not in self.said[seen:]:
            ready, _, _ = select.select([self._file], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"the terminal shows {self.said[seen:]!r}"
            self.said += os.read(self._file, 4096).decode()
        return self.said[seen:]

    def close(self) -> None:
        os.write(self._file, b"\x15exit\n")
        os.waitpid(self._pid, 0)
        os.close(self._file)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_in_bash(programs: Path) -> None:
    terminal = Terminal("bash", "--norc", "--noprofile", "-i")
    try:
        terminal.type('eval "$(kintune completion bash)"; echo DO""NE\n', until="DONE")
        terminal.type("kintune tun\t", until="kintune tune ")
        terminal.type("zoo:mobilenet_v1\t", until="zoo:mobilenet_v1_0.5 ")
        terminal.type("--trial\t", until="--trials ")
        terminal.type("\x15kintune tune mod\t", until="kintune tune model.onnx ")
        terminal.type("\x15kintune tune my\t", until="my\\ net.onnx ")
        terminal.type("\x15kintune tune --foresee=pub\t", until="--foresee=published ")
    finally:
        terminal.close()


@pytest.mark.needs("zsh")
def test_in_zsh(programs: Path) -> None:
    terminal = Terminal("zsh", "-f", "-i")
    try:
        terminal.type(
            'PS1="READY> "; autoload -Uz compinit; compinit -u; eval "$(kintune completion zsh)"; echo DO""NE\n',
            until="DONE",
        )
        terminal.type("kintune tun\t", until="kintune tune ")
        terminal.type("zoo:mobilenet_v1\t", until="zoo:mobilenet_v1_0.5 ")
    finally:
        terminal.close()


@pytest.mark.needs("fish")
def test_in_fish(programs: Path, tmp_path: Path) -> None:
    script = tmp_path / "kintune.fish"
    script.write_text(script_for("fish"))
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {script}; complete --do-complete 'kintune tune zoo:mobilenet_v1'"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\t")[0].strip() == "zoo:mobilenet_v1_0.5"
