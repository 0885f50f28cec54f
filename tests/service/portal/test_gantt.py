from __future__ import annotations

from kintune.core.stage_results import StageName
from kintune.scheduler.resources import Placement
from kintune.service.portal.gantt import JOBS, STAGE_KINDS, StageBar, bars_of, gantt
from kintune.service.portal.style import STAGES
from kintune.service.web.live_state import LiveStage

HOST, GPU = Placement("local", 1), Placement(None, 0, 0, "gpu", exclusive=True)


def stage(kind: str, begin: float, end: float | None, where: Placement = HOST, job: str = "a") -> LiveStage:
    return LiveStage(job, f"{kind}-0", kind, where, begin, end)


def test_every_stage_has_a_colour_and_words_of_its_own() -> None:
    kinds = {value for name, value in vars(StageName).items() if name.isupper()} - {"known", "kin"}
    assert kinds <= set(STAGES)
    assert kinds <= set(STAGE_KINDS) == set(STAGES)
    assert len({kind.words for kind in STAGE_KINDS.values()}) == len(STAGE_KINDS)
    for screen in (0, 1):
        assert len({colours[screen] for colours in STAGES.values()}) == len(STAGES)


def test_stages_are_cut_off_where_the_picture_begins_and_now() -> None:
    stages = [stage("profile", 600.0, 990.0, GPU), stage("build", 925.0, None), stage("build", 100.0, 200.0)]
    assert bars_of(stages, 1000.0, 300.0) == {
        "gpu": [[StageBar("profile", "a", 0.0, 1 - 10 / 300)]],
        "local": [[StageBar("build", "a", 0.75, 1.0)]],
    }


def test_stages_at_the_same_time_are_in_lanes() -> None:
    stages = [stage("build", 900.0, 950.0), stage("build", 920.0, 960.0, job="b"), stage("select", 955.0, 990.0)]
    (lanes,) = bars_of(stages, 1000.0, 100.0).values()
    assert [[bar.kind for bar in lane] for lane in lanes] == [["build", "select"], ["build"]]


def test_many_short_stages_become_one_bar() -> None:
    stages = [stage("build", 700.0 + number / 10, 700.0 + number / 10 + 0.099) for number in range(3000)]
    (lanes,) = bars_of(stages, 1000.0, 300.0).values()
    assert [bar.stages for lane in lanes for bar in lane] == [3000]


def test_the_legend_has_what_is_shown() -> None:
    drawn = gantt([stage("build", 900.0, 950.0), stage("mystery", 960.0, 980.0)], 1000.0, 300.0, lambda job: "net")
    assert "net: compiling programs, 50 s" in drawn
    assert "work of the service" in drawn
    assert "timing programs" not in drawn
    assert gantt([], 1000.0, 300.0, str) == ""


def test_jobs_of_a_day_are_drawn_by_how_they_ended() -> None:
    jobs = [stage("done", 0.0, 43_200.0, GPU), stage("failed", 43_200.0, 50_000.0, GPU)]
    drawn = gantt(jobs, 86_400.0, 86_400.0, lambda job: "net", JOBS)
    assert "left:min(50.00%,100% - 4px)" in drawn
    assert "net: failed" in drawn
    assert [each for each in ("24 h", "18 h", "12 h", "6 h", "now") if f"<span>{each}</span>" not in drawn] == []
