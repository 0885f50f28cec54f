"""From what people write to a request; whatever is wrong is said before any work."""

from __future__ import annotations

import math
import os
from typing import cast, get_args

import msgspec

from kintune.core.payloads import ModelRef, Options
from kintune.core.strategy import Foresee, Strategy
from kintune.errors import InputError
from kintune.files import check_writable, readable_files
from kintune.search.family import check_algorithm
from kintune.tuning.front.request import TuneRequest

__all__ = ["DEFAULT_TRIALS", "compile_request", "tune_request"]

DEFAULT_TRIALS = 1000
"""The budget when none is given."""

_LARGEST = 1 << 63  # what cannot be kept as a whole number any more

Path = str | os.PathLike[str]


def tune_request(
    model: ModelRef,
    target: str = "native",
    *,
    device: str = "cpu",
    threads: int | None = None,
    trials: int | None = None,
    minutes: float | None = None,
    until_ms: float | None = None,
    families: str = "op",
    foresee: str = "guarded",
    carry: bool = True,
    kin: bool = True,
    round_size: int | None = None,
    seed: int = 0,
    inputs: Path | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-3,
    records: Path | None = None,
    output: Path | None = None,
    fresh: bool = False,
    log: Path | None = None,
    priority: float = 1.0,
) -> TuneRequest:
    """What `kintune.Model.tune` is asked, checked; raises InputError when something is wrong."""
    strategy = _strategy(families, foresee, carry=carry, round_size=round_size)
    return TuneRequest(
        model=model,
        target=target,
        threads=_at_least_one("threads", threads),
        device=device,
        options=_options(trials, minutes, until_ms, strategy, kin=kin, seed=seed, rtol=rtol, atol=atol),
        records=None if records is None else os.fspath(records),
        output=str(check_writable(output or f"{model.name}.kt", "the output")),
        fresh=fresh,
        inputs=() if inputs is None else tuple(map(str, readable_files(inputs, ".npz", "the inputs"))),
        log=None if log is None else str(check_writable(log, "the log")),
        priority=_positive("priority", priority) or 1.0,
    )


def compile_request(
    model: ModelRef,
    target: str = "native",
    *,
    device: str = "cpu",
    threads: int | None = None,
    seed: int = 0,
    inputs: Path | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-3,
    records: Path | None = None,
    output: Path | None = None,
    log: Path | None = None,
) -> TuneRequest:
    """What `kintune.Model.compile` is asked, checked; raises InputError when something is wrong."""
    request = tune_request(
        model,
        target,
        device=device,
        threads=threads,
        seed=seed,
        inputs=inputs,
        rtol=rtol,
        atol=atol,
        records=records,
        output=output,
        log=log,
    )
    return msgspec.structs.replace(request, options=msgspec.structs.replace(request.options, trials=None, search=False))


def _options(
    trials: int | None, minutes: float | None, until_ms: float | None, strategy: Strategy, *, kin: bool, seed: int,
    rtol: float, atol: float,
) -> Options:  # fmt: skip
    if trials is None and minutes is None and until_ms is None:
        trials = DEFAULT_TRIALS
    if seed < 0:
        raise InputError(f"seed must not be negative, and is {seed}")
    if seed >= _LARGEST:
        raise InputError(f"seed must be less than 2**63, and is {seed}")
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if not (math.isfinite(tolerance) and tolerance >= 0):
            raise InputError(f"{name} must be a number of 0 or more, and is {tolerance}")
    return Options(
        trials=_at_least_one("trials", trials),
        minutes=_positive("minutes", minutes),
        until_ms=_positive("until_ms", until_ms),
        strategy=strategy,
        kin=kin,
        seed=seed,
        rtol=rtol,
        atol=atol,
    )


def _strategy(families: str, foresee: str, *, carry: bool, round_size: int | None) -> Strategy:
    check_algorithm(families)
    if foresee not in get_args(Foresee):
        raise InputError(f"unknown foresee {foresee!r}; use one of: {', '.join(get_args(Foresee))}")
    strategy = Strategy(families=families, foresee=cast(Foresee, foresee), carry=carry)
    size = _at_least_one("round_size", round_size)
    if size is None:
        return strategy
    foresee_size = max(1, min(strategy.foresee_size, size // 2))
    return msgspec.structs.replace(strategy, round_size=size, foresee_size=foresee_size)


def _at_least_one(name: str, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise InputError(f"{name} must be 1 or more, and is {value}")
    if value is not None and value >= _LARGEST:
        raise InputError(f"{name} must be less than 2**63, and is {value}")
    return value


def _positive(name: str, value: float | None) -> float | None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} must be more than 0, and is {value:g}")
    return value
