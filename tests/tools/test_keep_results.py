"""What a bench or a script measured is kept in the notebook: tables as they are, measurements once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kintune.records import Store, export_records
from kintune.testing.records import add_workload, measurement

ROOT = Path(__file__).parents[2]


def keep(source: Path, notebook: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools/keep_results.py", source, "--notebook", notebook]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.needs("pyarrow")
def test_tables_and_measurements_are_kept_once(tmp_path: Path) -> None:
    bench, database, notebook = tmp_path / "bench", tmp_path / "script.sqlite", tmp_path / "notebook"
    (bench / "cells").mkdir(parents=True)
    (bench / "results.csv").write_text("a,b\n")
    (bench / "report.html").write_text("drawn anew by a command")
    with Store.open(str(database)) as store:
        store.measurements.add(measurement(add_workload(store, "conv"), 1, 3.0))
        export_records(store, bench / "records-cpu.jsonl.gz")
    first = keep(bench, notebook)
    assert first.returncode == 0, first.stderr
    assert [line.partition(": ")[2] for line in first.stdout.splitlines()] == ["1 new measurements", ""]
    assert [path.name for path in (notebook / "results" / "bench").iterdir()] == ["results.csv"]
    assert keep(database, notebook).stdout == "nothing new\n"


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    done = keep(tmp_path / "missing", tmp_path)
    assert (done.returncode, done.stderr) == (2, f"{tmp_path / 'missing'}: no such file or folder\n")
    other = tmp_path / "other.sqlite"
    other.write_text("no records")
    done = keep(other, tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
