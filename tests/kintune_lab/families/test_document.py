from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kintune_lab.families.document import families_of
from tests.support.example_families import prepared_network

KEYS = st.fixed_dictionaries({name: st.sampled_from("abc") for name in ("conv", "wide", "dense", "tail")})


def test_families_with_most_operations_come_first_and_number_their_members() -> None:
    keys = {"conv": "op:conv2d", "wide": "op:conv2d", "dense": "op:dense", "tail": "op:dense"}
    found = families_of(prepared_network(), "op", keys, {"conv": 20})
    assert [(family.key, [member.name for member in family.members]) for family in found.families] == [
        ("op:conv2d", ["fused_wide", "fused_conv"]),
        ("op:dense", ["fused_dense", "fused_tail"]),
    ]
    assert [member.number for member in found.members] == [1, 2, 3, 4]
    assert [member.samples for member in found.members] == [0, 20, 0, 0]
    assert (found.subgraphs, found.tunable, found.samples) == (5, 4, 20)


def test_loops_say_what_is_computed_and_over_what_it_is_summed() -> None:
    found = families_of(prepared_network(), "none", dict.fromkeys(("conv", "wide", "dense", "tail"), "none"))
    loops = {member.workload: member.loops for member in found.members}
    assert loops == {"conv": "56x56x64 over 3x3x32", "wide": "112x112x64 over 32", "dense": "1000 over 512", "tail": ""}


@given(KEYS)
def test_every_tunable_subgraph_has_one_family_and_shares_add_up(keys: dict[str, str]) -> None:
    found = families_of(prepared_network(), "op", keys)
    assert sorted(member.workload for member in found.members) == sorted(keys)
    assert {family.key for family in found.families} == set(keys.values())
    assert abs(sum(family.share for family in found.families) - 1) < 1e-9
    for family in found.families:
        assert {keys[member.workload] for member in family.members} == {family.key}
