from kintune.search.processor import Machine


def test_vectors_follow_from_the_instruction_set() -> None:
    assert Machine.of(("avx2", "avx512f", "fma")) == Machine(16, 32)
    assert Machine.of(("avx2",)) == Machine(8, 16)
    assert Machine.of(("asimd",)) == Machine(4, 32)
    assert Machine.of(()) == Machine(4, 16)


def test_caches_that_are_not_known_are_taken_as_usual() -> None:
    usual = Machine().caches
    assert Machine.of(("avx2",), 4, (48 << 10, 0, 30 << 20)) == Machine(8, 16, 4, (48 << 10, usual[1], 30 << 20))
    assert Machine.of(("avx2",), 4, (1, 2, 3, 4)).caches == (1, 2, 3)
