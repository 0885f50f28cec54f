"""What somebody asks the front to do."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import cast, get_args

import msgspec

from kintune.core.candidate import digest_of
from kintune.core.config import Foresee, Options, Strategy
from kintune.core.measurement_protocol import OPERANDS, MeasurementProtocol
from kintune.core.model import ModelRef
from kintune.core.version import ELEMENTARY, FEATURES
from kintune.errors import InputError
from kintune.files import check_writable, readable_files, sha256_of
from kintune.hardware.software import TVM_VERSION
from kintune.models.constants import describe_constants
from kintune.search.family import check_algorithm

__all__ = ["DEFAULT_TRIALS", "TuneRequest", "compile_request", "run_key", "tune_request"]


class TuneRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Tune `model` for `target` with `threads` threads (None: all of the device's cores) and write it to `output`.

    `device` is "cpu", all physical cores, on which nothing else runs while they measure; or cores of their own,
    "cpu:1"; or a GPU, "cuda:0".  `records` is the place of the records (None: the user's own), `inputs` are `.npz`
    files, a set of inputs each, to prove the result on, `log` is the file for details (None: one in the user's log
    directory).  `fresh` ignores unfinished runs and what is known.  Of several that are tuned at once, one of
    `priority` 2 gets twice as much of what is scarce as one of 1.
    """

    model: ModelRef
    target: str = "native"
    threads: int | None = None
    device: str = "cpu"
    options: Options = Options(trials=1000)
    records: str | None = None
    output: str
    fresh: bool = False
    inputs: tuple[str, ...] = ()
    log: str | None = None
    priority: float = 1.0


DEFAULT_TRIALS = 1000
"""The budget when none is given."""

_LARGEST = 1 << 63  # what cannot be kept as a whole number any more

PathLike = str | os.PathLike[str]


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
    inputs: PathLike | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-3,
    records: PathLike | None = None,
    output: PathLike | None = None,
    fresh: bool = False,
    log: PathLike | None = None,
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
    inputs: PathLike | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-3,
    records: PathLike | None = None,
    output: PathLike | None = None,
    log: PathLike | None = None,
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


def run_key(request: TuneRequest, threads: int, cpu: str, owner: str = "") -> str:
    """Digest of what makes two requests the same work: whose it is, the model, the options, what times are true for.

    A model in a file is known by the file's content, so that a copy is the same and an edit is not.  An unfinished run
    of another processor, compiler, protocol or feature extraction is other work: its decisions could not be made again
    here, nor its times compared.
    """
    model = request.model
    source = _content(Path(model.source)) if os.path.exists(model.source) else model.source
    parts = (model.kind, source, sorted(model.shapes.items()), sorted(model.options.items()))
    protocol = (MeasurementProtocol(threads=threads).version, OPERANDS)
    device = (request.target, threads, cpu, TVM_VERSION, ELEMENTARY, protocol, FEATURES)
    mine: tuple[object, ...] = (owner,) if owner else ()
    if model.constants:
        mine = (*mine, "constants", describe_constants(model.constants))
    return digest_of(msgspec.msgpack.encode((parts, device, request.options, *mine)))


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return sha256_of(file).hex()
