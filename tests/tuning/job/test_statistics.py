from __future__ import annotations

from kintune.core.candidate import Candidate
from kintune.core.config import Options
from kintune.core.outcome import Outcome, Status
from kintune.tuning.job.statistics import JobStatistics

TUNED = Candidate("dense", "sketch", ())
CALM = Outcome(Status.OK, times_us=(1.0,))
DISTURBED = Outcome(Status.OK, times_us=(1.0,), repeated=2)


def test_disturbed_trials_are_counted_once_each_and_nothing_else() -> None:
    statistics = JobStatistics()
    for outcome in (CALM, DISTURBED, DISTURBED):
        statistics.count(TUNED, outcome, trial=True)
    statistics.count(Candidate.untuned("dense"), DISTURBED, trial=True)  # no trial
    statistics.count(TUNED, DISTURBED, trial=False)  # a finalist, which was a trial before
    report = statistics.report("profile", "dense", Options(trials=8), None, None)
    assert (report.trials, report.disturbed) == (3, 2)
    assert report.searches
    assert not statistics.report("draft", "", Options(search=False), None, None).searches
