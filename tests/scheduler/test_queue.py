from hypothesis import given
from hypothesis import strategies as st

from kintune.scheduler.queue import IndexedQueue

moves = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.none() | st.integers(-5, 5)), max_size=200)


@given(moves=moves)
def test_the_first_is_always_the_smallest(moves: list[tuple[str, int | None]]) -> None:
    queue: IndexedQueue[str] = IndexedQueue()
    model: dict[str, tuple[int, int]] = {}
    for ticket, (entry, key) in enumerate(moves):
        if key is None:
            queue.discard(entry)
            model.pop(entry, None)
        else:
            queue.put(entry, key)
            model[entry] = (key, ticket)
        expected = sorted(model, key=lambda each: model[each])
        assert queue.in_order() == expected
        assert queue.first() == (expected[0] if expected else None)
        assert queue.peek() == ((model[expected[0]][0], expected[0]) if expected else None)
        assert len(queue) == len(model)
        assert (entry in queue) == (entry in model)


def test_moving_one_entry_for_ever_keeps_the_queue_small() -> None:
    queue: IndexedQueue[str] = IndexedQueue()
    for key in range(10_000):
        queue.put("a", -key)
    assert len(queue._heap) < 50
