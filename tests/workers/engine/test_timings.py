from kintune.workers.engine.timings import StageClock, Timings


def test_overlapping_stages_count_each_but_are_busy_once() -> None:
    watch = StageClock()
    assert watch.read(5.0) == Timings()
    watch.begin(10.0)
    watch.begin(11.0)
    watch.end(13.0, "build", since=10.0)
    watch.end(14.0, "build", since=11.0)
    watch.begin(16.0)
    watch.end(17.0, "profile", since=16.0)
    timings = watch.read(20.0)
    assert timings == Timings({"build": 6.0, "profile": 1.0}, wall_seconds=10.0, busy_seconds=5.0)
    assert timings.overhead_seconds == 5.0
    assert watch.active(12.0) == 2.0


def test_a_stage_that_still_runs_is_busy() -> None:
    watch = StageClock()
    watch.begin(1.0)
    assert watch.read(3.0).busy_seconds == 2.0
