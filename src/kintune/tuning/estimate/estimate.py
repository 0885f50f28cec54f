"""What tuning a model will take and can reach, before any of it is done."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kintune.core.device_about import DeviceAbout, Peak
from kintune.core.payloads import ModelRef, Prepared
from kintune.hardware.cores import choose_cores
from kintune.hardware.locks import cores_lock
from kintune.hardware.software import require_tried_versions
from kintune.records import Store, Tally
from kintune.tuning.estimate.preparation import prepare
from kintune.tuning.estimate.weights import weight_bytes
from kintune.tuning.peak import device_peak
from kintune.wire.interview import interview

__all__ = ["Estimate", "Known", "estimate_model"]

_GUESS_S = 0.5  # a trial, where no run has shown otherwise
_ENOUGH_TRIALS = 64  # to believe what past runs took


class Known(msgspec.Struct, frozen=True):
    """What records give for this model on this device type.

    `measurements` were made for `workloads` of its distinct subgraphs; `latency_ms` is the sum of the best, None unless
    every subgraph has one.
    """

    workloads: int = 0
    measurements: int = 0
    latency_ms: float | None = None


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What can be said of tuning a model.

    `subgraphs` are distinct, `tunable` of them worth a budget; `flops` are those of one run.  `bound_ms` is the latency
    that no program can beat on this device, by the roofline of its `peak`.  `trials` take about `seconds`, judged by
    past runs when `judged_by_runs`.
    """

    schema_version: int = 1
    model: str
    model_digest: str
    subgraphs: int
    tunable: int
    flops: float
    weight_bytes: int
    target: str
    threads: int
    peak: Peak
    bound_ms: float
    known: Known
    trials: int
    seconds: float
    judged_by_runs: bool


def estimate_model(
    ref: ModelRef,
    *,
    target: str = "native",
    threads: int | None = None,
    trials: int = 1000,
    records: str | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> Estimate:
    """Import and lower the model, measure the machine's peak unless it is known, and look into the records.

    No records are created.  It waits for whoever is timing on the cores, and `on_wait` is told who.  Raises InputError
    (or a child) when model, target or records cannot be used.
    """
    require_tried_versions()
    weights = weight_bytes(ref)
    cores = choose_cores(threads or 0)
    arguments = ("--target", target, "--threads", str(len(cores)))
    with _existing(records) as store, cores_lock(cores, on_wait):
        with interview("kintune.workers.device_worker", arguments) as device:
            about = msgspec.msgpack.decode(device.about, type=DeviceAbout)
            peak = device_peak(device, about, store)
        prepared = prepare(ref, about)
        known = Known() if store is None else _known(store, about, prepared)
        pace = None if store is None else _pace(store)
    flops = sum(subgraph.weight * subgraph.flops for subgraph in prepared.subgraphs)
    cache = max((cache.size for cache in about.machine.caches), default=0)
    return Estimate(
        model=prepared.model_name,
        model_digest=prepared.model_digest,
        subgraphs=len(prepared.subgraphs),
        tunable=sum(subgraph.tunable for subgraph in prepared.subgraphs),
        flops=flops,
        weight_bytes=weights,
        target=about.device_type.target,
        threads=about.device_type.threads,
        peak=peak,
        bound_ms=peak.least_us(flops, max(0, weights - cache)) / 1e3,
        known=known,
        trials=trials,
        seconds=trials * (pace or _GUESS_S),
        judged_by_runs=pace is not None,
    )


@contextmanager
def _existing(records: str | None) -> Iterator[Store | None]:
    """The records if there are any yet."""
    where = records or Store.default_location()
    if "://" not in where and not Path(where).expanduser().exists():
        yield None
        return
    with Store.open(where, create=False) as store:
        yield store


def _known(store: Store, about: DeviceAbout, prepared: Prepared) -> Known:
    wanted = {subgraph.workload for subgraph in prepared.subgraphs}
    tallies: Mapping[str, Tally] = {
        tally.workload: tally
        for tally in store.measurements.tallies()
        if tally.workload in wanted
        and tally.device_type == about.device_type.digest
        and tally.compiler == about.compiler
    }
    best_us = [
        subgraph.weight * tally.best_us
        if (tally := tallies.get(subgraph.workload)) and tally.best_us is not None
        else math.inf
        for subgraph in prepared.subgraphs
    ]
    total_ms = sum(best_us) / 1e3
    return Known(
        workloads=len(tallies),
        measurements=sum(tally.measured for tally in tallies.values()),
        latency_ms=total_ms if best_us and math.isfinite(total_ms) else None,
    )


def _pace(store: Store) -> float | None:
    """Seconds a trial took in past runs, all stages included; None while there were too few."""
    measured = store.measurements.made_here()
    spent = sum(run.active_seconds for run in store.runs.list(on_damage=lambda _: None))
    return spent / measured if measured >= _ENOUGH_TRIALS and spent > 0 else None
