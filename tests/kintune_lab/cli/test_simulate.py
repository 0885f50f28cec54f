from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kintune.scheduler.events import RecordedStep, ScheduleHeader, encode_line
from kintune.scheduler.policies import policy
from kintune.scheduler.scheduler import Scheduler
from kintune_lab.simulate.simulator import Simulator
from kintune_lab.simulate.spec import read_schedule_spec

if TYPE_CHECKING:
    from tests.support.command import Kintune

SPEC = """
name = "two"
description = "Two jobs on one host."
seeds = 2
[[host]]
id = "h"
[[device]]
type = "gpu"
[[job]]
name = "a"
count = 2
device = "gpu"
rounds = 3
build_s = 3
profile_s = 5
update_s = 2
[[setup]]
policy = "sequential"
measured_s = 50
[[setup]]
policy = "predictive"
bundling = true
"""


@pytest.fixture(autouse=True)
def _a_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "two.toml").write_text(SPEC)


def test_setups_stand_side_by_side(kintune: Kintune) -> None:
    said = kintune("simulate", "two.toml", "--json", "out.json", "--audit")
    assert said.code == 0
    title, note, head, one, two = said.out.splitlines()
    assert title == "two: Two jobs on one host."
    assert "median of 2 seeds" in note
    assert head.split()[:3] == ["setup", "all", "done"]
    assert one.startswith("sequential")
    assert "60 s" in one
    assert one.rstrip().endswith("+20 %")
    assert two.startswith("predictive, bundled")
    document = json.loads(Path("out.json").read_text())
    assert (document["schema_version"], document["seeds"], len(document["played"])) == (1, 2, 4)


def test_setups_and_seeds_can_be_chosen(kintune: Kintune) -> None:
    said = kintune("simulate", "two.toml", "--setup", "predictive, bundled", "--seeds", 1)
    assert said.code == 0
    assert "one seed" in said.out
    assert "sequential" not in said.out


def test_pictures_are_drawn(kintune: Kintune) -> None:
    said = kintune("simulate", "two.toml", "--picture", "p.svg", "--until", 10)
    assert said.code == 0
    assert sorted(path.name for path in Path().glob("*.svg")) == ["p-predictive-bundled.svg", "p-sequential.svg"]
    assert "The picture of sequential is p-sequential.svg" in said.out
    kintune("simulate", "two.toml", "--setup", "sequential", "--picture", "alone.png")
    assert Path("alone.png").exists()


def test_jobs_that_were_not_done_are_counted(kintune: Kintune) -> None:
    Path("bad.toml").write_text(f"{SPEC}[faults]\nfailing = 1.0\n")
    said = kintune("simulate", "bad.toml", "--setup", "sequential")
    assert said.code == 0
    assert said.out.splitlines()[-1] == "Of 4 jobs under sequential: 4 failed; their ends are no part of 'mean job'"


def test_jobs_are_played_live_beside(kintune: Kintune) -> None:
    said = kintune("simulate", "two.toml", "--live", "--speed", 200)
    assert said.code == 0
    firsts = [line.split("  ")[0] for line in said.out.splitlines()[3:]]
    assert firsts == ["sequential", "sequential, live", "predictive, bundled", "predictive, bundled, live"]


def test_a_recording_is_played_under_other_policies(kintune: Kintune) -> None:
    scenario = read_schedule_spec("two.toml").scenario(0)
    with Path("s.jsonl").open("wb") as file:
        file.write(encode_line(ScheduleHeader("fair", names={"a-1": "net"})))
        Simulator(
            Scheduler(policy("fair")),
            scenario.resources,
            scenario.jobs,
            observe=lambda event, decisions: file.write(encode_line(RecordedStep(event, tuple(decisions)))) and None,
        ).run()
    said = kintune("simulate", "s.jsonl", "--setup", "predictive")
    assert said.code == 0
    rows = [line.split("  ")[0] for line in said.out.splitlines()[3:]]
    assert rows == ["as recorded (fair)", "predictive"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.toml"], "missing.toml does not exist"),
        (["missing.jsonl"], "missing.jsonl: cannot be read"),
        (["two.toml", "--until", "10"], "--until is the end of a chart; name its file with --picture"),
        (["two.toml", "--speed", "10"], "--speed is for --live; virtual time has none"),
        (["any.jsonl", "--seeds", "3"], "--seeds 3: nothing is drawn in a recording; leave it out"),
        (["two.toml", "--live", "--seeds", "2"], "--seeds 2: --live plays one seed; leave one of them out"),
        (["two.toml", "--setup", "fair"], "there is no such setup in two; there are 'sequential'"),
        (["two.toml", "--seeds", "0"], "0 is not in the range"),
        (["two.toml", "--speed", "0"], "0.0 is not in the range"),
        (["two.toml", "--live", "--speed", "nan"], "is not a finite number"),
        (["two.toml", "--live", "--speed", "inf"], "is not a finite number"),
        (["two.toml", "--picture", "p.png", "--until", "nan"], "is not a finite number"),
        (["two.toml", "--picture", "p.txt"], ".png or .svg"),
        (["two.toml", "--picture", "missing/p.png"], "there is no directory"),
        (["two.toml", "--json", "missing/o.json"], "there is no directory"),
    ],
)
def test_bad_input_is_one_line(kintune: Kintune, arguments: list[str], said: str) -> None:
    result = kintune("simulate", *arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert result.err.count("\n") == 1


def test_no_line_is_wider_than_the_terminal(kintune: Kintune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    _title, _note, *table = kintune("simulate", "two.toml").out.splitlines()
    assert table[0].split()[:3] == ["setup", "all", "done"]
    assert table[0].endswith("measured  difference")
    assert max(map(len, table)) <= 60
