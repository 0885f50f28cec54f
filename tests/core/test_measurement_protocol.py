from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.device import DeviceDescription
from kintune.core.measurement_protocol import OPERANDS, DeviceType, MeasurementProtocol, operands_for
from tests.support.boards import board_about


class Occurs(NamedTuple):
    weight: int
    weight_bytes: float
    activations: float = 0.0

    @property
    def bytes(self) -> float:
        return self.weight_bytes + self.activations


def kind(protocol: str) -> DeviceType:
    return DeviceType("{}", "a processor", (), 2, protocol)


@pytest.mark.parametrize(
    ("weight_bytes", "cool_bytes", "operands"),
    [(8e6, 16 << 20, "cool"), (16 << 20, 16 << 20, "cool"), (17e6, 16 << 20, "cold"), (8e6, 0, "cold"), (0, 1, "cold")],
)
def test_weights_are_cool_where_they_stay_in_the_last_cache(
    weight_bytes: float, cool_bytes: int, operands: str
) -> None:
    assert operands_for([Occurs(1, weight_bytes)], cool_bytes) == operands


def test_a_subgraph_counts_as_often_as_it_occurs() -> None:
    assert operands_for([Occurs(2, 3.0), Occurs(1, 1.0)], 7) == "cool"
    assert operands_for([Occurs(2, 3.0), Occurs(1, 2.0)], 7) == "cold"


def test_the_largest_activations_need_room_beside_the_weights() -> None:
    assert operands_for([Occurs(1, 3.0, 2.0), Occurs(1, 1.0, 3.0)], 7) == "cool"
    assert operands_for([Occurs(1, 3.0, 2.0), Occurs(1, 1.0, 4.0)], 7) == "cold"
    assert operands_for([Occurs(3, 0.0, 4.0)], 7) == "cold"  # nothing to send anywhere
    assert operands_for([], 7) == "cold"
    assert operands_for([Occurs(1, 1.0)], 1) == "cool"


@pytest.mark.parametrize(
    ("named", "cool"),
    [("2-cold", "2-cool"), ("2-cold-crowded", "2-cool-crowded"), ("2-all-but-first", "2-all-but-first"), ("2", "2")],
)
def test_a_device_type_says_with_which_operands(named: str, cool: str) -> None:
    assert kind(named).with_operands("cool") == kind(cool)


@given(st.sampled_from(OPERANDS), st.sampled_from(OPERANDS))
def test_other_operands_are_another_type_and_lead_back(one: str, other: str) -> None:
    assert (kind(f"2-{one}").digest == kind(f"2-{other}").digest) is (one == other)
    assert kind(f"2-{one}").with_operands(other).with_operands(one) == kind(f"2-{one}")


def test_a_device_that_cannot_tell_times_all_networks_cold() -> None:
    about: DeviceDescription = board_about("Cortex-A72")
    assert about.protocol_for([Occurs(1, 1.0)]) == about.protocol == MeasurementProtocol(threads=about.protocol.threads)
