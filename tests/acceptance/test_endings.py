"""How real runs end: by signals, without anybody who listens, and with a report of what went wrong."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import jsonschema
import psutil
import pytest

from kintune.core.failure_report import report_schema
from kintune.testing.small_onnx import write_small_onnx

if TYPE_CHECKING:
    from tests.acceptance.conftest import Place

pytestmark = [pytest.mark.tvm, pytest.mark.usefixtures("hears_hangups")]

NEVER_SPENT = 100_000


def report_of(place: Place) -> dict[str, Any]:
    """The report beside the executable, which is valid."""
    document: dict[str, Any] = json.loads((place.folder / "small.report.json").read_text())
    jsonschema.validate(document, report_schema(), jsonschema.Draft202012Validator)
    return document


@pytest.mark.slow
def test_one_signal_keeps_what_was_found(empty_place: Place) -> None:
    """A terminal that closes sends two, one after the other, which count as one."""
    command = empty_place.tune("--trials", NEVER_SPENT, "--no-kin")
    command.wait_for_events(2, "profile")
    command.process.send_signal(signal.SIGHUP)
    command.process.send_signal(signal.SIGHUP)
    assert command.wait() == 0, command.err
    assert (empty_place.folder / "small.kt").stat().st_size > 0
    report = report_of(empty_place)
    assert report["reason"] == "interrupted"
    assert report["latency_ms"]["tuned"] > 0
    assert f"The report is {empty_place.folder / 'small.report.json'}" in command.out


def test_a_second_signal_ends_it_at_once(empty_place: Place) -> None:
    command = empty_place.tune("--trials", NEVER_SPENT)
    command.wait_for_events(1, "profile")
    command.interrupt()
    children = command.children()
    command.process.send_signal(signal.SIGTERM)  # another one: two that are the same may arrive as one
    assert command.wait() == 128 + signal.SIGTERM
    assert command.err.splitlines()[-1] == "kintune: interrupted"
    _, left = psutil.wait_procs(children, timeout=20)
    assert [child for child in left if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []
    assert empty_place.query("SELECT state FROM runs") == [("interrupted",)]


@pytest.mark.slow
def test_a_run_goes_on_without_anybody_who_listens(empty_place: Place) -> None:
    """Its terminal is closed, which it was told to ignore, and its output goes to a full disk."""
    master, slave = pty.openpty()
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen(
            [sys.executable, "-m", "kintune", "tune", str(empty_place.model), "--trials", "24", "--round-size", "8"],
            cwd=empty_place.folder,
            env={**os.environ, **empty_place.environment},
            stdin=slave,
            stdout=full,
            stderr=slave,
            start_new_session=True,
        )
    os.close(slave)
    assert os.read(master, 1)  # it has begun to draw
    os.close(master)
    assert process.wait(timeout=200) == 2  # the summary could not be written
    assert (empty_place.folder / "small.kt").stat().st_size > 0
    assert report_of(empty_place)["trials"] == 24


@pytest.mark.slow
def test_a_reader_who_leaves_does_not_end_a_run(empty_place: Place) -> None:
    tune = f"{sys.executable} -m kintune tune {empty_place.model} --trials 8 --round-size 8"
    command = f"set -o pipefail; {tune} 2>&1 | head -1"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=empty_place.folder,
        env={**os.environ, **empty_place.environment},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 141
    assert done.stdout.startswith("small, target native")
    assert (empty_place.folder / "small.kt").stat().st_size > 0
    assert report_of(empty_place)["trials"] == 8


def test_a_model_that_is_refused_has_a_report(empty_place: Place) -> None:
    write_small_onnx(empty_place.model, operator="Unheard")
    command = empty_place.tune("--quiet", "--no-onnxruntime")
    assert command.wait() == 2
    report = report_of(empty_place)
    assert "Unheard" in report["cause"]
    assert (report["trials"], report["subgraphs"]) == (0, [])
    page = empty_place.start("report", "small.kt", "--html", "page.html")
    assert page.wait() == 0
    assert "Unheard" in (empty_place.folder / "page.html").read_text()
