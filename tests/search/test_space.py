from kintune.search.processor import Processor


def test_vectors_follow_from_the_instruction_set() -> None:
    assert Processor.of(("avx2", "avx512f", "fma")) == Processor(16, 32)
    assert Processor.of(("avx2",)) == Processor(8, 16)
    assert Processor.of(("asimd",)) == Processor(4, 32)
    assert Processor.of(()) == Processor(4, 16)


def test_caches_that_are_not_known_are_taken_as_usual() -> None:
    usual = Processor().caches
    assert Processor.of(("avx2",), 4, (48 << 10, 0, 30 << 20)) == Processor(8, 16, 4, (48 << 10, usual[1], 30 << 20))
    assert Processor.of(("avx2",), 4, (1, 2, 3, 4)).caches == (1, 2, 3)
