from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import click
import pytest

import kintune as package
from kintune.cli import entry
from kintune.cli.entry import main
from kintune.errors import InputError, JobFailed
from kintune.workers.engine.interrupts import Interrupted

HEAVY = {"tvm", "tvm_ffi", "numpy", "sqlalchemy", "rich", "onnx", "onnxruntime", "torch", "xgboost", "psutil"}

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], int]:
    """Run a command that raises."""

    def run(error: BaseException) -> int:
        def fail(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(entry.root, "main", fail)
        return int(main([]))

    return run


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("x.onnx: no such file"), 2, "kintune: error: x.onnx: no such file"),
        (InputError("two\nlines"), 2, "kintune: error: two lines"),
        (InputError("red\x1b[31m: no such\x07"), 2, "kintune: error: red [31m: no such"),
        (
            InputError(f"{'a' * 5000}: no such file"),
            2,
            f"kintune: error: {'a' * 1993} ... {'a' * 1986}: no such file",
        ),
        (JobFailed("nothing was measured"), 1, "kintune: error: nothing was measured"),
        (KeyboardInterrupt(), 130, "kintune: interrupted"),
        (Interrupted(signal.SIGTERM), 143, "kintune: interrupted"),
        (Interrupted(signal.SIGHUP), 129, "kintune: interrupted"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            2,
            "kintune: error: the output cannot be written: No space left on device",
        ),
        (OSError(errno.EIO, "Input/output error"), 2, "kintune: error: the output cannot be written: Input"),
        (OSError(errno.EACCES, "Permission denied", "x"), 1, "kintune: internal error: PermissionError"),
        (MemoryError(), 1, "kintune: error: there is not enough memory"),
        (MemoryError("4 TiB"), 1, "kintune: error: there is not enough memory: 4 TiB"),
        (click.Abort(), 130, "kintune: interrupted"),
        (click.UsageError("no such option."), 2, "kintune: error: no such option (see kintune --help)"),
        (
            click.UsageError("Got unexpected extra arguments (ids=1x32 ids=1x64)"),
            2,
            "kintune: error: Got unexpected extra arguments (ids=1x32 ids=1x64); if the shell has expanded the "
            "braces of --shape, put its text in quotes (see kintune --help)",
        ),
        (
            click.UsageError("Got unexpected extra argument (b.onnx)"),
            2,
            "kintune: error: Got unexpected extra argument (b.onnx) (see kintune --help)",
        ),
        (click.ClickException("cannot open"), 2, "kintune: error: cannot open"),
        (ZeroDivisionError("division by zero"), 1, "kintune: internal error: ZeroDivisionError: division by zero;"),
    ],
)
def test_every_error_is_one_line_and_an_exit_code(
    failing: Callable[[BaseException], int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    line: str,
) -> None:
    monkeypatch.delenv("KINTUNE_DEBUG", raising=False)
    assert failing(error) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(line)
    assert captured.err.count("\n") == 1


def test_whoever_debugs_gets_the_trace(
    failing: Callable[[BaseException], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINTUNE_DEBUG", "1")
    with pytest.raises(InputError):
        failing(InputError("x"))


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from kintune.cli import main; code = main(['--help']); "
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stderr.split())
    assert "click" in imported
    assert not HEAVY & imported
    assert "A model:" in done.stdout


def test_a_reader_who_leaves_is_no_error() -> None:
    command = f"{sys.executable} -c 'import sys; from kintune.cli import main; sys.exit(main())' --help | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "kintune", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"kintune {package.__version__}\n"


RUN = f"{sys.executable} -m kintune"


def in_shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True)


@pytest.mark.parametrize("arguments", ["--help", "models", "tune --help", "records list --records none.sqlite"])
def test_a_closed_pipe_ends_a_command_as_the_signal_would(arguments: str) -> None:
    done = in_shell(f"set -o pipefail; {RUN} {arguments} 2>err | true; cat err; rm err; exit ${{PIPESTATUS[0]}}")
    assert "internal error" not in done.stdout


def test_who_reads_only_the_first_line_gets_it() -> None:
    done = in_shell(f"{RUN} models | head -1; echo ${{PIPESTATUS[0]}}")
    assert done.stdout.splitlines()[0].startswith("name")
    assert done.stdout.splitlines()[1] in ("0", "141")  # whether it had written all by then
    assert done.stderr == ""


def test_a_pipe_that_was_closed_before_is_told_by_the_exit_code() -> None:
    code = (
        "import os, subprocess, sys\n"
        "reader, writer = os.pipe(); os.close(reader)\n"
        "done = subprocess.run([sys.executable, '-m', 'kintune', 'models'], stdout=writer, stderr=subprocess.PIPE)\n"
        "print(done.returncode, done.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "141 b''\n"


@pytest.mark.parametrize("arguments", ["--help", "models", "models --json -", "--version", "completion bash"])
def test_a_full_disk_is_one_line(arguments: str) -> None:
    done = in_shell(f"{RUN} {arguments} > /dev/full")
    assert done.returncode == 2
    assert done.stderr == "kintune: error: the output cannot be written: No space left on device\n"


def test_a_document_on_a_full_disk_is_one_line() -> None:
    done = in_shell(f"{RUN} models --json /dev/full")
    assert done.returncode == 2
    assert done.stderr == "kintune: error: cannot write /dev/full: No space left on device\n"


@pytest.mark.parametrize("stream", ["2>/dev/full", "2>&-", ">&-"])
def test_nobody_needs_to_listen(stream: str) -> None:
    done = in_shell(f"{RUN} models --json models.json {stream}; code=$?; rm -f models.json; exit $code")
    assert done.returncode == 0
    done = in_shell(f"{RUN} tune there-is-none.onnx {stream}")
    assert done.returncode == 2


def test_an_argument_that_is_not_utf8_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kintune", "compile", b"net\xff.onnx"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert r"b'net\xff.onnx' is not UTF-8" in done.stderr


def test_what_the_terminal_lacks_is_written_as_an_escape() -> None:
    code = (
        "import click, sys; from kintune.cli import entry; entry.root.main = lambda **_: click.echo('a \u2192 b'); "
        "sys.exit(entry.main([]))"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, b"a \\u2192 b\n")
