"""What the machine around the tuner may do to it."""

from __future__ import annotations

import json
import resource
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.acceptance.conftest import Place

pytestmark = pytest.mark.tvm


@pytest.mark.slow
def test_without_a_linker_that_works_the_job_ends_before_it_tunes(empty_place: Place) -> None:
    linker = empty_place.folder / "linker"
    linker.write_text("#!/bin/sh\necho 'no space for symbols' >&2\nexit 1\n")
    linker.chmod(0o755)
    command = empty_place.tune("--trials", 4, "--json", "report.json", CC=str(linker))
    assert command.wait() == 2
    (line,) = [line for line in command.err.splitlines() if line.startswith("kintune: error")]
    assert "cannot be tuned: linking failed: exit code 1, no space for symbols" in line  # and no node is blamed
    assert not list(empty_place.folder.glob("*.kt*"))
    assert "no space for symbols" in json.loads((empty_place.folder / "report.json").read_text())["cause"]
    assert empty_place.query("SELECT state FROM runs") == [("failed",)]


@pytest.mark.slow
def test_a_disk_that_fills_up_pauses_the_run(empty_place: Place) -> None:
    command = empty_place.tune()
    command.wait_for_events(6)
    wal = empty_place.folder / "records.sqlite-wal"
    resource.prlimit(command.process.pid, resource.RLIMIT_FSIZE, (wal.stat().st_size, resource.RLIM_INFINITY))
    assert command.wait() == 2
    assert command.err.splitlines()[-1].startswith("kintune: error: ")
    assert "Traceback" not in command.err
    before = empty_place.events()
    again = empty_place.tune("--json", "report.json")
    assert again.wait() == 0, again.err
    assert [event for event in empty_place.events() if event in before] == before
    assert len(empty_place.query("SELECT run_id FROM runs")) == 1
