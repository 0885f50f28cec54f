"""Ready queues against a list of all stages."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from kintune.core.stage import Demand
from kintune.scheduler.ready_stages import ReadyQueue, ReadyQueues

CORE, MORE = Demand(cores=1), Demand(cores=3)


@dataclass(eq=False)
class Waiting:
    """A stage in a queue."""

    name: str
    queue: ReadyQueue | None = None
    ticket: int = 0
    due_ticket: int = 0


@dataclass
class Model:
    """What is in a queue: rank and order of insertion by stage; and when each is due, by starts of its queue."""

    ranks: dict[str, tuple[int, int]] = field(default_factory=dict)
    due: dict[str, tuple[int, int]] = field(default_factory=dict)


_MOVES = st.lists(
    st.tuples(
        st.sampled_from(["put", "discard", "start"]),
        st.sampled_from("abcdefgh"),
        st.integers(-3, 3),
        st.none() | st.integers(0, 4),
    ),
    max_size=120,
)


@given(moves=_MOVES)
def test_a_queue_gives_overdue_stages_first_and_then_by_rank(
    moves: list[tuple[str, str, int, int | None]],
) -> None:
    """Two queues, of which one must not notice what happens in the other."""
    queues = ReadyQueues()
    kinds = [queues.queue_for(CORE, home) for home in (None, "h")]
    assert queues.queue_for(CORE, "h") is kinds[1]
    stages = {name: Waiting(name) for name in "abcdefgh"}
    ranks: dict[str, tuple[int, int]] = {}
    due: dict[str, tuple[int, int]] = {}
    starts = [0, 0]
    for order, (move, name, rank, patience) in enumerate(moves):
        queue, stage = kinds[name > "d"], stages[name]
        if move == "put":
            if name not in ranks and patience is not None:
                due[name] = starts[name > "d"] + patience, order
            ranks[name] = rank, order
            queues.put(stage, queue, rank, patience)
        else:
            left = [other for other in ranks if other != name and (other > "d") == (name > "d")]
            emptied = name in ranks and not left
            assert queues.discard(stage) is (queue if emptied else None)
            ranks.pop(name, None)
            due.pop(name, None)
            if move == "start":
                queues.started(queue)
                starts[name > "d"] += 1
        for number, kind in enumerate(kinds):
            mine = {other: where for other, where in ranks.items() if (other > "d") == bool(number)}
            waiting = min((due[other], other) for other in mine if other in due) if mine.keys() & due.keys() else None
            overdue = waiting[1] if waiting is not None and waiting[0][0] <= starts[number] else None
            found = queues.first(kind)
            if overdue is not None:
                assert found == ((0, due[overdue][0]), stages[overdue])
            elif mine:
                first = min(mine, key=lambda other: mine[other])
                assert found == ((1, mine[first][0]), stages[first])
            else:
                assert found is None
            assert (kind in queues.ready()) == bool(mine) == queues.is_open(kind)
            assert queues.bound_to("h") == bool(mine) or not number
            for other in mine:
                assert queues.must_wait(stages[other]) == (overdue not in (None, other))
        assert not any(queues.must_wait(each) for other, each in stages.items() if other not in ranks)


def test_the_very_first_stage_is_gone_once_it_is_discarded() -> None:
    queues = ReadyQueues()
    queue = queues.queue_for(CORE, None)
    first, second = Waiting("a"), Waiting("b")
    queues.put(first, queue, 0)
    queues.put(second, queue, 1)
    assert queues.discard(first) is None
    assert queues.first(queue) == ((1, 1), second)


def test_moving_stages_for_ever_keeps_the_queue_small() -> None:
    queues = ReadyQueues()
    queue = queues.queue_for(CORE, None)
    stages = [Waiting(str(number)) for number in range(20)]
    for rank in range(5000):
        queues.put(stages[rank % 20], queue, -rank, 3)
        assert rank < 20 or queue.count == 20
        if rank % 3 == 0:
            queues.discard(stages[rank % 20])
            queues.put(stages[rank % 20], queue, -rank, 3)
        assert len(queue.heap) <= 2 * queue.count + 17
        assert len(queue.due) <= 2 * queue.patient + 17
        assert queues.first(queue) == ((1, -rank), stages[rank % 20])
    assert queue.count == queue.patient == 20
    left = {stage.name for stage in stages}
    while (found := queues.first(queue)) is not None:
        left.remove(found[1].name)  # type: ignore[attr-defined]
        queues.discard(found[1])
    assert not left


def test_a_blocked_queue_waits_until_one_of_its_reasons_is_freed_for_as_many_cores() -> None:
    queues = ReadyQueues()
    few, many = queues.queue_for(CORE, None), queues.queue_for(MORE, "h")
    assert not queues.bound_to("h")
    for queue in (few, many):
        queues.put(Waiting("a"), queue, 0)
    assert queues.bound_to("h")
    assert not queues.bound_to(None)
    for queue in (few, many):
        queues.block(queue, ("any host", "type gpu"))
    assert queues.ready() == []
    queues.freed(["host h"])
    assert queues.ready() == []
    queues.freed(["any host"], 1)
    assert queues.ready() == [few]
    queues.freed(["type gpu"], 2)
    assert queues.ready() == [few]
    queues.freed(["type gpu"], 3)
    assert queues.ready() == [few, many]


def test_those_that_wait_for_what_another_got_count_it_until_they_start() -> None:
    queues = ReadyQueues()
    one, two = queues.queue_for(CORE, None), queues.queue_for(MORE, None)
    stage = Waiting("a")
    queues.put(stage, one, 0)
    queues.put(Waiting("b"), two, 0)
    queues.block(one, ("any host", "type gpu"))
    queues.block(two, ("type gpu",))
    assert queues.passed_by(["any host", "type gpu"]) == [(one, 1), (two, 1)]
    assert queues.passed_by(["any host"]) == [(one, 2)]
    assert queues.passed_by(["host h"]) == []
    queues.started(one)
    assert queues.passed_by(["any host", "type gpu"]) == [(one, 1), (two, 2)]
    assert queues.discard(stage) is one
    assert queues.discard(stage) is None
    queues.put(stage, one, 0)
    assert queues.is_open(one)
    queues.block(one, ("any host",))
    assert queues.passed_by(["any host"]) == [(one, 1)]


def test_stages_that_are_due_stay_so_whatever_has_come_and_gone() -> None:
    queues = ReadyQueues()
    queue = queues.queue_for(CORE, None)
    kept, other = Waiting("kept"), Waiting("other")
    queues.put(kept, queue, 9, 1)
    for _ in range(60):
        queues.put(other, queue, 0, 3)
        queues.discard(other)
    queues.put(other, queue, 0)
    queues.started(queue)
    assert queues.first(queue) == ((0, 1), kept)


def test_a_host_is_bound_until_the_last_of_its_queues_is_empty() -> None:
    queues = ReadyQueues()
    stages = [Waiting(name) for name in "abc"]
    for number, stage in enumerate(stages):
        queues.put(stage, queues.queue_for(Demand(cores=number + 1), "h"), 0)
    for number, stage in enumerate(stages):
        queues.discard(stage)
        assert queues.bound_to("h") == (number < 2)
    assert not queues.bound_to(None)
