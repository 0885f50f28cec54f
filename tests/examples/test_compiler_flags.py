"""Another kind of job under the same scheduler and engine, with a real compiler."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "compiler_flags.py"
PROGRAM = """
#include <stdio.h>
int main(void) {
  static double a[256][256], b[256];
  for (int k = 0; k < %d; ++k)
    for (int i = 0; i < 256; ++i)
      for (int j = 0; j < 256; ++j) b[i] += a[i][j] * (k + j);
  printf("%%f\\n", b[7]);
  return 0;
}
"""


@pytest.fixture
def sources(tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"{name}.c" for name in ("first", "second")]
    for number, path in enumerate(paths, start=1):
        path.write_text(PROGRAM % (20 * number))
    return [str(path) for path in paths]


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLE), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def command_of(process: psutil.Process) -> list[str]:
    """Its command line; empty once it has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def test_it_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 200


def test_two_programs_are_tuned_at_once(sources: list[str]) -> None:
    out, err = start(*sources, "--rounds", "2", "--policy", "fair").communicate(timeout=120)
    assert err == ""
    lines = out.splitlines()
    for source in sources:
        assert any(line.startswith(f"{source}: ") and " ms" in line and "cc " in line for line in lines), out
    stages = [line for line in lines if line.endswith(tuple(f"-{n}" for n in range(2)))]
    assert len(stages) == 2 * 2 * 4
    assert len({line.split(": ")[0] for line in stages[:4]}) == 2


def test_a_job_whose_process_is_killed_goes_on(sources: list[str]) -> None:
    with start(sources[0], "--rounds", "3") as running:
        killed = False
        while not killed and running.poll() is None:
            children = psutil.Process(running.pid).children()
            jobs = [child for child in children if command_of(child)[-3:-2] == ["job"]]
            if jobs and len(children) > 1:
                jobs[0].kill()
                killed = True
            time.sleep(0.05)
        out, err = running.communicate(timeout=120)
    assert killed
    assert running.returncode == 0, err
    assert "cc " in out.splitlines()[-1]
    stages = [line for line in out.splitlines() if line.split("-")[-1].isdigit()]
    assert len(set(stages)) == 3 * 4


def test_a_program_that_does_not_compile_fails_its_job_alone(sources: list[str]) -> None:
    Path(sources[0]).write_text("this is not C")
    out, _ = start(*sources, "--rounds", "1").communicate(timeout=120)
    assert f"{sources[0]}: failed: no program could be built and run" in out
    assert f"{sources[1]}: " in out
    assert "cc " in out
