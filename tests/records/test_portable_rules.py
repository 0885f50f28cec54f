from __future__ import annotations

import msgspec
import pytest

from kintune.core.candidate import Candidate, Location, Sketch
from kintune.records import Measurement
from kintune.records.portable_rules import Rules
from kintune.testing.records import DEVICE, measurement

WORKLOAD = "a" * 32
SKETCH = Sketch(WORKLOAD, "b" * 32, b"trace", (Location(12),))
INLINED, ROOT = -2, -1


@pytest.fixture
def rules() -> Rules:
    rules = Rules({"1": 16}.get)
    assert [rules.device_type(DEVICE), rules.workload(WORKLOAD), rules.sketch(SKETCH)] == ["", "", ""]
    return rules


def at(place: int) -> Measurement:
    return msgspec.structs.replace(
        measurement(WORKLOAD, 0, 1.0), candidate=Candidate(WORKLOAD, SKETCH.digest, ((place,),))
    )


@pytest.mark.parametrize("place", [INLINED, ROOT, 0, 11])
def test_a_producer_may_be_anywhere(rules: Rules, place: int) -> None:
    assert rules.measurement(at(place)) == ""


def test_there_is_no_place_beyond_inlined(rules: Rules) -> None:
    assert rules.measurement(at(-3)) == "its decision 0 does not answer its axis"


def test_features_are_as_many_as_known_ones_of_their_version(rules: Rules) -> None:
    narrow = msgspec.structs.replace(at(0), features=bytes(8))
    assert rules.measurement(narrow) == "it has 2 features, others of version '1' have 16"
    assert rules.measurement(msgspec.structs.replace(narrow, feature_version="2")) == ""
    assert "of version '2' have 2" in rules.measurement(msgspec.structs.replace(at(0), feature_version="2"))


def test_a_measurement_without_features_is_one(rules: Rules) -> None:
    assert rules.measurement(msgspec.structs.replace(at(0), features=b"", feature_version="")) == ""
