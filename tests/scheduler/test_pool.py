"""The pool of resources: claims, and what could ever fit or fits anyway, against a look at each resource."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kintune.core.stage import Demand
from kintune.errors import SchedulerError
from kintune.scheduler.pool import ResourcePool
from kintune.scheduler.resources import Device, Host, Placement
from tests.support.free_resources import fits

DEMANDS = st.builds(
    Demand,
    cores=st.integers(0, 5),
    memory_mb=st.sampled_from([0, 50, 150]),
    device=st.sampled_from([None, None, "gpu", "cpu"]),
    exclusive=st.booleans(),
)
HOSTS = [Host("a", 4, 100), Host("b", 2, 200), Host("c", 4, 100)]
DEVICES = [
    Device("ga", "gpu", host="a"),
    Device("gb", "gpu", host="b"),
    Device("free", "gpu"),
    Device("cc", "cpu", "c", True),
]


def pool_of(lost: set[str], hosts: list[Host] = HOSTS, devices: list[Device] = DEVICES) -> ResourcePool:
    pool = ResourcePool()
    for resource in (*hosts, *devices):
        pool.join(resource)
    for id in sorted(lost):
        pool.lose(id)
    return pool


LOST = st.sets(st.sampled_from([each.id for each in (*HOSTS, *DEVICES)]), max_size=4)


@given(
    lost=LOST,
    demand=DEMANDS,
    home=st.sampled_from([None, "a", "b", "c"]),
    taken=st.sets(st.sampled_from("abc"), max_size=2),
    with_free=st.booleans(),
)
@example(lost=set(), demand=Demand(cores=1, device="gpu"), home="a", taken=set(), with_free=False)
@example(lost=set(), demand=Demand(cores=1, device="gpu"), home="c", taken=set(), with_free=True)
@example(lost=set(), demand=Demand(cores=1, device="gpu"), home="c", taken=set(), with_free=False)
def test_a_claim_is_on_a_large_host_where_the_demand_may_run(
    lost: set[str], demand: Demand, home: str | None, taken: set[str], with_free: bool
) -> None:
    devices = [each for each in DEVICES if each.host or with_free]
    lost = {id for id in lost if id in "abc" or id in {each.id for each in devices}}
    pool = pool_of(lost, devices=devices)
    for id in sorted(taken):
        pool.claim(id, Demand(cores=1), id)
    claimed = {id for id in taken if id not in lost}
    large = [
        host.id
        for host in HOSTS
        if host.cores >= demand.cores and host.memory_mb >= demand.memory_mb and host.id not in lost | claimed
    ]
    if demand.device is not None:
        of_type = [
            each for each in devices if each.type == demand.device and each.id not in lost and each.host not in lost
        ]
        near = [each.host for each in of_type if each.host is not None]
        may = [home] if home in near or any(each.host is None for each in of_type) else []
        large = [id for id in (near if home is None else may) if id in large]
    elif home is not None:
        large = [id for id in [home] if id in large]
    pool.claim("me", demand, home)
    mine = [host.id for host in HOSTS if pool.is_claimed(host.id) and host.id not in claimed]
    assert len(mine) <= 1
    assert set(mine) <= set(large)
    assert bool(mine) == bool(large)
    pool.claim("me", demand, home)  # a second claim changes nothing
    assert mine == [host.id for host in HOSTS if pool.is_claimed(host.id) and host.id not in claimed]
    if mine:
        assert mine[0] == (min(large, key=free) if demand.device is None else large[0])
    assert pool.unclaim("me") == (pool.tokens(mine[0]) if mine else ())
    assert not mine or not pool.is_claimed(mine[0])
    assert pool.unclaim("me") == ()


def free(id: str) -> tuple[int, bool, int, str]:
    """The order in which hosts are tried: the freest first, one that is no device before another, the older one."""
    host = next(each for each in HOSTS if each.id == id)
    return -host.cores, id == "c", -host.memory_mb, id


def test_a_claimed_host_is_for_its_claimant_alone() -> None:
    pool = pool_of(set())
    pool.claim("me", Demand(cores=4), "a")
    assert pool.place(Demand(cores=1), "a") is None
    assert pool.place(Demand(cores=1), "a", "another") is None
    assert pool.place(Demand(cores=1), "a", "me") == Placement("a", 1, 0)
    assert pool.place(Demand(cores=1)) == Placement("c", 1, 0)
    assert pool.place(Demand(cores=1), None, "me") == Placement("a", 1, 0)  # its own claim is tried first
    assert pool.place(Demand(cores=1, device="gpu")) == Placement("b", 1, 0, "gb")
    assert pool.is_claimed("a")
    assert not pool.is_claimed("b")
    assert not pool.is_claimed(None)


def test_a_device_on_a_claimed_host_fits_whoever_asks() -> None:
    """Whether its claim is another's is asked by `place`."""
    pool, near = pool_of(set()), Demand(cores=1, device="gpu")
    pool.claim("me", near)
    assert pool.is_claimed("a")
    assert pool.fits(Placement("a", 1, 0, "ga"), near)


def test_a_device_that_is_the_cores_of_its_host_has_all_of_them() -> None:
    pool = pool_of(set())
    for cores, there in ((0, Placement("c", 4, 0, "cc", True)), (4, Placement("c", 4, 0, "cc", True)), (5, None)):
        assert pool.place(Demand(cores=cores, device="cpu", exclusive=True)) == there


def test_a_place_that_is_taken_anyway_is_near_the_process() -> None:
    near = Demand(cores=1, device="gpu")
    pool = pool_of(set(), devices=[each for each in DEVICES if each.host])
    assert [pool.place_anyway(near, home) for home in ("a", "b", "c")] == [
        *(Placement("a", 1, 0, "ga"), Placement("b", 1, 0, "gb")),
        None,
    ]
    assert pool_of(set()).place_anyway(near, "c") == Placement("c", 1, 0, "free")


def test_what_is_lost_is_claimed_by_nobody() -> None:
    pool = pool_of(set())
    pool.claim("me", Demand(cores=1), "a")
    pool.lose("a")
    assert pool.unclaim("me") == ()
    assert not pool.usable("a")
    pool.back("a")
    assert pool.usable("a")
    assert not pool.usable("no host")
    assert pool.place(Demand(cores=1), "a") == Placement("a", 1, 0)


def test_the_claim_for_a_device_falls_with_it() -> None:
    pool = pool_of(set())
    pool.claim("me", Demand(cores=1, device="gpu"))
    assert pool.is_claimed("a")
    assert pool.drop_claim("gb") == pool.drop_claim("free") == pool.drop_claim("unknown") == ()
    assert pool.drop_claim("ga") == pool.tokens("a")
    assert pool.drop_claim("ga") == ()
    assert not pool.is_claimed("a")


@given(lost=LOST, demand=DEMANDS)
def test_what_could_ever_run_does_so_once_all_is_free(lost: set[str], demand: Demand) -> None:
    """A lost resource may be back."""
    assert pool_of(lost).could_ever(demand) == (pool_of(set()).place(demand) is not None)


def test_what_could_never_run_may_once_a_resource_joins() -> None:
    pool = ResourcePool()
    demand = Demand(cores=2, device="gpu")
    assert not pool.could_ever(demand)
    pool.join(Host("h", 1, 0))
    pool.join(Device("g", "gpu"))
    assert not pool.could_ever(demand)
    pool.join(Host("i", 2, 0))
    assert pool.could_ever(demand)
    assert pool.could_ever(Demand(device="gpu"))
    assert pool.could_ever(Demand())


@given(
    demand=DEMANDS,
    placement=st.builds(
        Placement,
        host=st.sampled_from([None, "a", "b", "x"]),
        cores=st.integers(0, 5),
        memory_mb=st.sampled_from([0, 50, 150]),
        device=st.sampled_from([None, None, "ga", "free", "x"]),
        exclusive=st.booleans(),
    ),
    lost=LOST,
)
@example(demand=Demand(cores=1), placement=Placement("a", 2, 0), lost={"a"})
def test_a_placement_fits_anyway_if_it_has_what_is_demanded_and_is_there(
    demand: Demand, placement: Placement, lost: set[str]
) -> None:
    pool = pool_of(lost)
    known = placement.device in ("ga", "free")
    enough = placement.cores >= demand.cores and placement.memory_mb >= demand.memory_mb
    there = not lost & {placement.host, placement.device} and not (placement.device == "ga" and "a" in lost)
    right = demand.device in ("gpu",) if known else demand.device is None
    assert pool.fits_anyway(placement, demand) == (enough and right and there)


@given(demand=DEMANDS, booked=DEMANDS, lost=LOST)
def test_what_is_placed_fits_and_is_free_again_once_it_is_released(
    demand: Demand, booked: Demand, lost: set[str]
) -> None:
    pool = pool_of(lost)
    placement = pool.place(demand)
    if placement is None:
        return
    assert pool.fits(placement, demand)
    other = pool.place(booked)
    pool.book(("j", "s"), placement)
    tokens = pool.release(("j", "s"))
    assert pool.place(demand) == placement
    assert pool.place(booked) == other
    expected = [pool.tokens(id) for id in (placement.device, placement.host) if id is not None]
    assert tokens == tuple(token for each in expected for token in each)


def test_what_does_not_fit_is_no_fit() -> None:
    pool = pool_of(set())
    one = Demand(cores=1)
    assert pool.fits(Placement("a", 1, 0), one)
    assert not pool.fits(Placement("a", 2, 0), one)
    assert not pool.fits(Placement("x", 1, 0), one)
    assert not pool.fits(Placement(None, 1, 0), one)
    assert not pool.fits(Placement("a", 1, 0), Demand(cores=1, device="gpu"))
    assert not pool.fits(Placement("a", 1, 0, "x"), Demand(cores=1, device="gpu"))
    assert not pool.fits(Placement("a", 1, 0, "ga"), Demand(cores=1, device="cpu"))
    pool.book(("j", "s"), Placement("a", 4, 0))
    assert not pool.fits(Placement("a", 1, 0), one)
    assert pool.room("a") == 0
    assert pool.room("b") == 2
    assert pool.room("c") is None  # a device runs on its cores


def test_a_resource_joins_once_and_a_device_after_its_host() -> None:
    pool = pool_of(set())
    for wrong, message in (
        (Host("a", 1, 1), "has joined before"),
        (Device("ga", "gpu", host="a"), "has joined before"),
        (Device("new", "gpu", host="x"), "which has not joined"),
        (Device("new", "gpu", on_host_cores=True), "names none"),
        (Device("new", "gpu", capacity=0), "a capacity of 0"),
    ):
        with pytest.raises(SchedulerError, match=message):
            pool.join(wrong)
    pool.join(Device("new", "gpu", capacity=1))
    pool.lose("ga")
    with pytest.raises(SchedulerError, match="as another kind or elsewhere"):
        pool.join(Device("ga", "gpu", host="b"))
    with pytest.raises(SchedulerError, match="as another kind or elsewhere"):
        pool.join(Host("ga", 1, 1))
    with pytest.raises(SchedulerError, match="lost already"):
        pool.lose("ga")
    pool.join(Device("ga", "other", host="a"))
    assert pool.place(Demand(device="other")) == Placement("a", 0, 0, "ga")
    assert set(pool.tokens("a")) >= {*pool.tokens("ga")}
    with pytest.raises(SchedulerError, match="is not lost"):
        pool.back("ga")
    with pytest.raises(SchedulerError, match="no resource"):
        pool.lose("unknown")


@given(
    demands=st.lists(DEMANDS, max_size=8),
    released=st.sets(st.integers(0, 7)),
    lost=LOST,
    home=st.sampled_from([None, "a", "b", "c"]),
)
def test_a_place_is_found_where_there_is_one(
    demands: list[Demand], released: set[int], lost: set[str], home: str | None
) -> None:
    """Whatever was booked and released before; and it has what is demanded, free and at home."""
    devices = [*DEVICES, Device("few", "gpu", host="b", capacity=1)]
    pool = pool_of(lost, devices=devices)
    there = {each.id: each for each in (*HOSTS, *devices) if each.id not in lost}
    booked: dict[int, Placement] = {}
    for number, demand in enumerate(demands):
        placement = pool.place(demand)
        assert (placement is not None) == fits(there, list(booked.values()), demand, None)
        if placement is not None:
            booked[number] = placement
            pool.book(("j", str(number)), placement)
    for number in sorted(released & booked.keys()):
        pool.release(("j", str(number)))
        del booked[number]
    for demand in (
        *demands,
        Demand(cores=1),
        Demand(device="gpu", exclusive=True),
        Demand(device="cpu", exclusive=True),
    ):
        placement = pool.place(demand, home)
        assert (placement is not None) == fits(there, list(booked.values()), demand, home)
        if placement is not None:
            assert home is None or placement.host in (None, home)
            assert pool.fits(placement, demand)
            free_cores = min((-pool._hosts[id].free_cores for id in "abc" if id in there), default=0)
            if demand.device is None and demand.memory_mb == 0 and home is None:
                assert pool._hosts[placement.host or ""].free_cores == -free_cores  # the freest host
        waits = pool.waits_for(demand, home)
        of_host = ("any host",) if home is None else (f"host {home}",)
        needs_host = demand.device is None or demand.cores or demand.memory_mb
        assert waits == (*((f"type {demand.device}",) if demand.device else ()), *(of_host if needs_host else ()))


def test_what_is_booked_stays_booked_on_a_host_that_is_back_with_other_memory() -> None:
    pool = ResourcePool()
    pool.join(Host("h", 4, 100))
    pool.book(("j", "a"), Placement("h", 1, 30))
    pool.lose("h")
    pool.join(Host("h", 6, 80))
    assert pool.place(Demand(5, 50)) == Placement("h", 5, 50)
    assert pool.place(Demand(6, 50)) is None
    assert pool.place(Demand(1, 51)) is None
