"""What somebody asks the front to do."""

from __future__ import annotations

import msgspec

from kintune.core.payloads import ModelRef, Options

__all__ = ["TuneRequest"]


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
