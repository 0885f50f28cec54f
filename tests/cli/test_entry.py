from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import click
import pytest

import kintune as package
from kintune.cli import entry
from kintune.cli.entry import main
from kintune.errors import InputError, JobFailed

HEAVY = {"tvm", "tvm_ffi", "numpy", "sqlalchemy", "rich", "onnx", "onnxruntime", "torch", "xgboost", "psutil"}


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
        (JobFailed("nothing was measured"), 1, "kintune: error: nothing was measured"),
        (KeyboardInterrupt(), 130, "kintune: interrupted"),
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
    assert "Commands:" in done.stdout


def test_a_reader_who_leaves_is_no_error() -> None:
    command = f"{sys.executable} -c 'import sys; from kintune.cli import main; sys.exit(main())' --help | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "kintune", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"kintune {package.__version__}\n"
