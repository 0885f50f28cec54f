from kintune.core.backoff import BackOff


def test_waits_double_up_to_the_longest_and_begin_anew_after_a_success() -> None:
    waits = BackOff(1.0, 5.0)
    assert [waits.next_wait() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    waits.reset()
    assert waits.next_wait() == 1.0
