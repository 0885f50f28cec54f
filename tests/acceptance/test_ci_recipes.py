"""The recipes of docs/ci.md: their steps run, and end as they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.acceptance.conftest import Place

pytestmark = pytest.mark.tvm

PAGE = (Path(__file__).parents[2] / "docs/ci.md").read_text()
INSTALL = 'python3 -m venv .venv && .venv/bin/pip install "$KINTUNE_WHEELS"/*.whl'


def shell_recipe() -> list[str]:
    """The lines of the first script."""
    found = re.search(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def workflow_steps() -> list[str]:
    """What the steps of the workflow run."""
    found = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return re.findall(r"- run: (.*)", found[1])


def test_the_workflow_does_what_the_script_does() -> None:
    first, *steps = workflow_steps()
    assert first == INSTALL
    assert [step.replace(".venv/bin/", "") for step in steps] == shell_recipe()[2:]


@pytest.mark.slow
def test_the_script_runs_and_fails_when_the_model_is_slower(empty_place: Place) -> None:
    """Shortened: a few trials in place of ten minutes, and a limit that a tiny network meets."""
    folder = empty_place.folder
    empty_place.model.rename(folder / "model.onnx")
    program = folder / "kintune"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kintune "$@"\n')
    program.chmod(0o755)
    lines = "\n".join(shell_recipe())
    script = lines.replace("--minutes 10", "--trials 8").replace("--at-most 1.05", "--at-most 50 --seconds 1")
    environment = {**os.environ, **empty_place.environment, "PATH": f"{folder}:{os.environ['PATH']}"}

    def run(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=250
        )

    done = run(script)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "check.json").read_text())["passed"] is True
    assert (folder / "kintune-records.sqlite").exists()
    assert "<svg" in (folder / "report.html").read_text()
    check = next(line for line in shell_recipe() if line.startswith("kintune check"))
    done = run(check.replace("--at-most 1.05", "--at-most 0.001 --seconds 1"))
    assert done.returncode == 1
    assert json.loads((folder / "check.json").read_text())["passed"] is False
    assert "failed." in done.stdout
