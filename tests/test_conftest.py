"""The rule that CI skips nothing, tried on sessions of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PASSING = "def test_passes(): pass"
SKIPPED = "import pytest\n\ndef test_skips(): pytest.skip('no server')"
OTHER_CPU = "import pytest\n\n@pytest.mark.skipif(True, reason='this CPU has no tiles')\ndef test_skips(): pass"
NOT_COLLECTED = "import pytest\n\npytest.importorskip('no_such_module')"
EXPECTED_TO_FAIL = "import pytest\n\n@pytest.mark.xfail\ndef test_fails(): assert False"


def session(folder: Path, test: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on one test file under this project's conftest."""
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    (folder / "test_one.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    settings = {name: value for name, value in os.environ.items() if name != "KINTUNE_FORBID_SKIPS"}
    root = Path(__file__).parents[1]
    return subprocess.run(command, env={**settings, **environment}, cwd=root, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("test", "fails"),
    [(PASSING, False), (SKIPPED, True), (OTHER_CPU, False), (NOT_COLLECTED, True), (EXPECTED_TO_FAIL, False)],
)
def test_a_forbidden_skip_fails_the_session(tmp_path: Path, test: str, fails: bool) -> None:
    done = session(tmp_path, test, KINTUNE_FORBID_SKIPS="1")
    assert (done.returncode != 0) == fails, done.stdout
    assert ("skipped, which KINTUNE_FORBID_SKIPS forbids" in done.stdout) == fails


def test_a_skip_is_allowed_otherwise(tmp_path: Path) -> None:
    assert session(tmp_path, SKIPPED).returncode == 0
