"""The baselines of a job, as they were timed before its search, and the target that may depend on them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec

from kintune.core.config import DEFAULT_TRIALS, Options
from kintune.core.latency_target import UNTUNED_NETWORK, parse_target
from kintune.core.report import FastestBaseline, ProgressReport
from kintune.core.stage_requests import BaselineItem
from kintune.core.stage_results import BaselineLatencies

__all__ = ["BaselinesAndTarget"]


class BaselinesAndTarget:
    """What other runtimes take, and how fast the network must be for its search to end.

    `wanted` is what is still to be timed, None if nothing is, or before the network is prepared.  `latencies` are None
    before it was timed.  Of a network that is `partial`, some nodes run in onnxruntime: estimates leave these out, so
    that no target can be seen to be met.
    """

    def __init__(self, until: str | None) -> None:
        self.wanted: BaselineItem | None = None
        self.latencies: BaselineLatencies | None = None
        self.partial = False
        self._target = None if until is None else parse_target(until)

    def observe(self, found: BaselineLatencies | None, cause: str = "") -> list[str]:
        """Take in what was found; returns a line on each runtime that failed, and on a target that is not known.

        None says that the stage failed; the `cause` is a line.
        """
        self.wanted = None
        self.latencies = found or BaselineLatencies(())
        lines = [f"{name} was not timed before tuning: {why}" for name, why in self.latencies.failures.items()]
        if found is None:
            lines.append(f"other runtimes were not timed before tuning: {cause}")
        return [*lines, *self._unknown(self.latencies)]

    def have_timed(self, names: Collection[str]) -> bool:
        """Return whether one of these runtimes ran the model, with every combination of shapes."""
        each = () if self.latencies is None else self.latencies.each
        return bool(each) and all(any(times.get(name) for name in names) for times in each)

    def limited(self, options: Options) -> Options:
        """Return the options with another limit, if the target is the only one and cannot be known."""
        if options.trials is not None or options.minutes is not None or self.wanted is not None:
            return options
        unknown = bool(self._unknown(self.latencies or BaselineLatencies(())))
        return msgspec.structs.replace(options, trials=DEFAULT_TRIALS) if unknown else options

    def target_us(self, untuned_us: Sequence[float]) -> tuple[float, ...] | None:
        """Return the microseconds that the network may take with each combination of shapes.

        `untuned_us` has what it takes untuned with each, infinite while that is not known.  None if there is no target,
        or if it is not known.
        """
        quartiles: Sequence[Mapping[str, float]] = self.latencies.quartiles_ms() if self.latencies is not None else ()
        found = []
        for number, us in enumerate(untuned_us):
            times = quartiles[number] if number < len(quartiles) else {}
            named = {**times, UNTUNED_NETWORK: us / 1e3}
            target_ms = None if self._target is None else self._target.milliseconds(named)
            if target_ms is None:
                return None
            found.append(target_ms * 1e3)
        return tuple(found)

    def is_met(self, latency_us: Sequence[float], untuned_us: Sequence[float]) -> bool:
        """Return whether the network is estimated to take no longer than its target with every combination."""
        target_us = self.target_us(untuned_us)
        if not target_us or self.partial:
            return False
        return all(math.isfinite(us) and us <= most for us, most in zip(latency_us, target_us, strict=True))

    def shown(self, report: ProgressReport, untuned_us: Sequence[float]) -> ProgressReport:
        """Return the report of a job's progress with the baselines, and how the network stands against them."""
        together = self.latencies.together_ms() if self.latencies is not None else {}
        target_us = self.target_us(untuned_us)
        return msgspec.structs.replace(
            report,
            baselines=together,
            fastest_baseline=FastestBaseline.of(together, None if self.partial else report.best_ms),
            target_ms=target_us[0] / 1e3 if target_us is not None and len(target_us) == 1 else None,
            partial=self.partial,
        )

    def _unknown(self, latencies: BaselineLatencies) -> list[str]:
        """Return a line on why the target cannot be told from these; nothing if it can, or needs none of them."""
        target = self._target
        if target is not None and self.partial:
            return [f"the search could not end at {target.described}: estimates leave out what runs in onnxruntime"]
        if target is None or not target.needs_baselines:
            return []
        if latencies.each and all(target.milliseconds(times) is not None for times in latencies.quartiles_ms()):
            return []
        reasons = {**latencies.absent, **latencies.failures}
        why = reasons.get(target.baseline) or "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        return [f"the search could not end at {target.described}: that is not known{f' ({why})' if why else ''}"]
