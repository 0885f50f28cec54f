from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tvm

EXAMPLE = Path(__file__).parents[3] / "examples" / "stock_tuner.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, EXAMPLE, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--families", "best"), "stock_tuner: unknown family algorithm 'best'; use one of: op, hash, ind, none"),
        (("--foresee", "never"), "stock_tuner: unknown kind of foresee 'never'"),
        (("--trials", "0"), "argument --trials: invalid positive value: '0'"),
    ],
)
def test_wrong_arguments_cost_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_it_says_what_was_reached() -> None:
    done = run("--trials", "17", "--round-size", "4")
    assert done.returncode == 0, done.stderr
    family, *turns, result = done.stdout.splitlines()[-7:]
    assert family.startswith("family op:dense: ")
    assert [turn.split()[0] for turn in turns] == ["first", "first", "first", "full", "foresee"]
    assert result.startswith("17 trials: ")
