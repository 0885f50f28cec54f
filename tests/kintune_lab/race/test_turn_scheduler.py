from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.errors import EngineError
from kintune_lab.race.turn_scheduler import RaceRecord, TurnScheduler, reference_kernel
from tests.support.scripted_tuner import PassingTime, ScriptedTuner, ScriptedTurn


def run_turns(
    scripts: dict[str, tuple[list[float], bool]], ratio: float = 1.0
) -> tuple[RaceRecord, list[str], list[RaceRecord]]:
    """Run a race; each script is the seconds of the turns, and whether the tuner ends with them."""
    time = PassingTime()
    events: list[str] = []
    tuners = [
        ScriptedTuner(name, [ScriptedTurn(s) for s in seconds], time, events, ends=ends)
        for name, (seconds, ends) in scripts.items()
    ]

    def reference() -> float:
        assert not any(tuner.running for tuner in tuners)
        time.pass_by(3.0)
        return 50.0

    seen: list[RaceRecord] = []
    record = TurnScheduler(tuners, dict.fromkeys(scripts, ratio), time, reference).run(seen.append)
    return record, events, seen


def test_the_tuner_with_the_fewest_seconds_goes_next() -> None:
    _, events, _ = run_turns({"stock": ([10, 10, 10], True), "kintune": ([4, 4, 4, 4, 20], False)})
    assert [e.split()[0] for e in events if e.endswith("goes")] == [
        "stock", "kintune", "kintune", "kintune", "stock", "kintune", "kintune", "stock",
    ]  # fmt: skip


def test_a_tuner_is_charged_for_its_turns_and_for_nothing_else() -> None:
    record, _, _ = run_turns({"stock": ([10, 20], True), "kintune": ([5, 5, 5, 5, 5, 5], False)})
    stock, ours = record.tracks["stock"], record.tracks["kintune"]
    assert [turn.seconds for turn in stock.turns] == [10, 20]
    assert [turn.active_seconds for turn in ours.turns] == [5, 10, 15, 20, 25, 30]
    assert stock.prepare_seconds == 100
    assert stock.finished
    assert not ours.finished
    assert stock.active_seconds == ours.active_seconds == 30


def test_whoever_does_not_go_is_stopped() -> None:
    _, events, _ = run_turns({"stock": ([10, 10], True), "kintune": ([5, 5, 5, 5], False)})
    running: set[str] = {"stock", "kintune"}
    for event in events:
        who, what = event.split()
        if what == "stops":
            running.discard(who)
        elif what == "resumes":
            running.add(who)
        elif what == "goes":
            assert running == {who}
    assert not running


def test_the_others_may_spend_a_multiple_of_what_stock_did() -> None:
    record, _, _ = run_turns({"stock": ([10, 10], True), "kintune": ([8] * 9, False)}, ratio=2.0)
    assert record.tracks["kintune"].active_seconds == 40


def test_one_with_a_small_budget_goes_less_often_but_as_long_as_stock_does() -> None:
    record, events, _ = run_turns({"stock": ([10] * 6, True), "kintune": ([5] * 20, False)}, ratio=0.5)
    assert record.tracks["kintune"].active_seconds == 30
    goes = [e.split()[0] for e in events if e.endswith("goes")]
    assert goes[:4] == ["stock", "kintune", "stock", "kintune"]


def test_stock_goes_on_when_the_others_have_ended() -> None:
    record, _, _ = run_turns({"stock": ([10, 10, 10], True), "kintune": ([1, 1], True)})
    assert record.tracks["kintune"].finished
    assert len(record.tracks["stock"].turns) == 3


def test_each_turn_knows_its_place_and_what_the_machine_was_like() -> None:
    record, _, seen = run_turns({"stock": ([10, 10], True), "kintune": ([5, 5, 5, 5], False)})
    turns = sorted((t for track in record.tracks.values() for t in track.turns), key=lambda turn: turn.order)
    assert [turn.order for turn in turns] == list(range(6))
    assert [turn.began_s for turn in turns] == sorted(turn.began_s for turn in turns)
    assert all(turn.reference_us == 50.0 for turn in turns)
    assert [sum(len(t.turns) for t in record.tracks.values()) for record in seen] == [1, 2, 3, 4, 5, 6]
    assert seen[-1] == record


def test_a_tuner_that_lowered_the_network_otherwise_ends_the_race() -> None:
    time = PassingTime()
    tuners = [ScriptedTuner(name, [ScriptedTurn(1.0)], time, []) for name in ("stock", "kintune")]
    tuners[1].ready = msgspec.structs.replace(tuners[1].ready, modules={"a": b"other", "b": b"B"})
    with pytest.raises(EngineError, match="kintune has lowered the network otherwise than stock"):
        TurnScheduler(tuners, dict.fromkeys([tuner.name for tuner in tuners], 1.0), time, lambda: 1.0).run(
            lambda record: None
        )


@given(
    st.lists(st.floats(0.1, 100), min_size=1, max_size=12),
    st.lists(st.floats(0.1, 100), min_size=1, max_size=12),
    st.floats(0.1, 3),
)
def test_no_tuner_is_ever_ahead_by_more_than_one_turn(stock: list[float], ours: list[float], ratio: float) -> None:
    record, _, seen = run_turns({"stock": (stock, True), "kintune": (ours, False)}, ratio)
    total = sum(stock)
    pace = {"stock": 1.0, "kintune": min(1.0, ratio)}
    assert record.tracks["stock"].active_seconds == pytest.approx(total)
    for moment in seen:
        tracks = moment.tracks
        if not tracks["stock"].finished:
            for one, other in (("stock", "kintune"), ("kintune", "stock")):
                last = tracks[one].turns[-1].seconds if tracks[one].turns else 0.0
                begun = (tracks[one].active_seconds - last) / pace[one]
                assert begun <= tracks[other].active_seconds / pace[other] + 1e-6
    last = record.tracks["kintune"].turns[-1]
    begun = last.active_seconds - last.seconds
    assert begun < max(ratio * total, *(sum(stock[: i + 1]) for i in range(len(stock)))) + 1e-9
    assert last.active_seconds >= ratio * total - 1e-9


def test_it_answers_the_median_of_its_runs() -> None:
    ticks = itertools.accumulate(itertools.cycle([0.0, 0.03]))
    assert round(reference_kernel(lambda: next(ticks))()) == 30_000
