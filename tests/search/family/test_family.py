import numpy as np
import pytest

from kintune.errors import InputError
from kintune.search.family import Samples, Subject, algorithms, families, family_of

CONV = Subject("a", 1, 1e6, "conv2d", "conv2d-add")
CONV_RELU = Subject("b", 2, 2e6, "conv2d", "conv2d-add-relu")
DENSE = Subject("c", 1, 1e6, "dense", "conv2d-add")


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [("op", [[0, 1], [2]]), ("hash", [[0], [1], [2]]), ("ind", [[0], [1], [2]]), ("none", [[0, 1, 2]])],
)
def test_who_is_kin(algorithm: str, expected: list[list[int]]) -> None:
    families: dict[str, list[int]] = {}
    for index, subject in enumerate((CONV, CONV_RELU, DENSE)):
        families.setdefault(family_of(algorithm)(subject), []).append(index)
    assert list(families.values()) == expected


def test_equal_operator_sequences_are_kin_by_hash_but_not_alone() -> None:
    twin = Subject("d", 5, 9e6, CONV.operator, CONV.signature)
    assert family_of("hash")(CONV) == family_of("hash")(twin)
    assert family_of("ind")(CONV) != family_of("ind")(twin)


def test_keys_of_different_algorithms_differ() -> None:
    nothing = Samples(CONV, np.zeros((0, 0), np.float32), np.zeros(0, np.float32))
    assert len({families(algorithm).group([nothing], {})["a"] for algorithm in algorithms()}) == len(algorithms())


def test_an_unknown_algorithm_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"unknown family algorithm 'kin'; use one of: op, hash, ind, none, measured"):
        families("kin")
