"""The choice of what a result consists of, by times: which regions, on how many threads, or onnxruntime alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from kintune.core.report import Latencies
from kintune.errors import EngineError, InputError
from kintune.partition.keeping import hand_over_all, keep_regions, limit_region_threads
from kintune.runtime.hybrid_package import HybridPackage
from kintune.runtime.package import read_manifest, write_with_thread_counts
from kintune.validate.baseline_process import BaselineProcess
from kintune.validate.baseline_protocol import BaselineContext
from kintune.validate.baselines import FLUSHING, KINTUNE, BaselineModel
from kintune.validate.interleaved import InterleavedTimes, TimedEntry, time_interleaved
from kintune.validate.region_choice import is_slower, winning_regions, wins
from kintune.validate.thread_choice import choose_thread_counts, is_faster, profile_kernels
from kintune.validate.validation_run import TUNED, ValidationRun

__all__ = ["ResultChoice"]

_BASELINE = "onnxruntime"
_FLUSHING = FLUSHING[_BASELINE]  # as it would run here, where that was timed
_CHOSEN = "tuned, threads chosen"
_LEAST_GAIN = 0.02  # with which the extents of what runs in onnxruntime are fixed
_AGAIN = {"rounds": 60, "min_rounds": 2, "runs": 2}  # of `look_again`
_AGAIN_SECONDS = 20.0


class ResultChoice:
    """Chooses what is faster, and lets the validation go on with that: it replaces the file in `ValidationRun.item`."""

    def __init__(self, run: ValidationRun, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self.run = run
        self._clock = clock
        self.is_fixed = False
        """Whether onnxruntime runs all of it, with fixed extents."""

    def choose_regions(self) -> tuple[int, ...] | None:
        """Chooses the regions that are faster than onnxruntime on the same nodes, and goes on with these alone.

        None where nothing changes: there are fewer than two regions (the times of the network decide on one), all of
        them are faster, or onnxruntime is not timed.
        """
        run = self.run
        hybrid = run.manifest.hybrid
        if hybrid is None or len(hybrid.regions) < 2 or not self._has_baseline:
            return None
        path = Path(run.item.tuned)
        kept = winning_regions(path, run.directory, run.conditions, run.cores, run.item.seed, self._clock)
        if len(kept) == len(hybrid.regions):
            return None
        if not kept and run.item.onnx and self.hand_over_all():  # the form in which it is then published
            return kept
        changed = run.directory / "regions.kt"
        onnx = Path(run.item.onnx) if run.item.onnx else None
        keep_regions(path, kept, changed, onnx, run.item.constants)
        run.item = msgspec.structs.replace(run.item, tuned=str(changed))
        return kept

    def hand_over_all(self) -> bool:
        """Goes on with a result that runs in onnxruntime altogether; returns whether that is possible.

        Its extents are fixed where that is faster (`is_fixed`): onnxruntime plans memory better then, or worse.
        """
        files = {fixed: self.run.directory / f"onnxruntime{' fixed' if fixed else ''}.kt" for fixed in (False, True)}
        source, onnx = Path(self.run.item.tuned), Path(str(self.run.item.onnx))
        try:
            for fixed, changed in files.items():
                hand_over_all(source, onnx, self.run.item.constants, changed, fixed=fixed)
        except InputError as error:
            self.run.skipped["all in onnxruntime"] = str(error)
            return False
        self.run.item = msgspec.structs.replace(self.run.item, tuned=str(files[False]))
        if len(self.run.manifest.combinations) == 1:
            self.is_fixed = self._go_on_if_faster(files[True], least=_LEAST_GAIN)
        return True

    @property
    def _has_baseline(self) -> bool:
        """Whether nodes may run in onnxruntime, and it is timed."""
        return self.run.item.timed and self.run.item.may_hand_over and _BASELINE in self.run.item.compare

    def should_hand_over(self, rounds_ms: Mapping[str, Sequence[float]]) -> bool:
        """Returns whether all of the network is to run in onnxruntime, and may.

        `rounds_ms` has the median of each round in milliseconds, by name.  A network that needs no onnxruntime is
        handed over if it is slower, one with regions unless it is faster.
        """
        ours, theirs = rounds_ms.get(TUNED, ()), rounds_ms.get(_FLUSHING, rounds_ms.get(_BASELINE, ()))
        ours, theirs = ours[: len(theirs)], theirs[: len(ours)]  # the network may have had further rounds with another
        if not (self._has_baseline and self.run.item.onnx and ours and theirs):
            return False
        if self._is_whole:
            return is_slower(ours, theirs)
        hybrid = read_manifest(self.run.item.tuned).hybrid
        return bool(hybrid and hybrid.regions) and not wins(ours, theirs)

    @property
    def _is_whole(self) -> bool:
        """Whether the network runs without onnxruntime on the shapes that it was tuned for."""
        hybrid = read_manifest(self.run.item.tuned).hybrid
        return hybrid is None or bool(hybrid.other_shapes)

    def look_again(
        self, first: InterleavedTimes, running: Sequence[TimedEntry], first_s: float = _AGAIN_SECONDS
    ) -> InterleavedTimes:
        """Returns the times, with further rounds appended where the first ones do not carry what is said of them.

        That is where the interval of the ratio to the fastest other network is longer than the gain or the loss, or
        where a network that needs no onnxruntime would be handed over although it may be as fast (`PairedRatio`).  In
        further rounds the network and this one alone take turns, which are shorter; they take no longer than the first
        rounds did, in `first_s` seconds.
        """
        other = self._in_doubt(first)
        if other is None:
            return first
        pair = [process for process in running if process.name in (TUNED, other)]
        seconds = min(first_s, _AGAIN_SECONDS)
        conditions = msgspec.structs.replace(self.run.conditions, **_AGAIN, race_seconds=seconds)
        further = time_interleaved(pair, conditions, self._clock)
        return first if further.dropped else first.followed_by(further)

    def _in_doubt(self, first: InterleavedTimes) -> str | None:
        """The name of what is to be timed once more beside the network; None where the first rounds suffice."""
        latencies = Latencies.of(first.latency_ms, first.rounds_ms)
        baseline = _FLUSHING if _FLUSHING in latencies.paired else _BASELINE
        theirs = latencies.paired.get(baseline)
        if theirs is not None and self._is_whole and self.should_hand_over(first.rounds_ms) and not theirs.is_decided:
            return baseline
        fastest = latencies.fastest_baseline
        return fastest.name if fastest is not None and fastest.low is not None and not fastest.tells else None

    def choose_threads(self) -> dict[int, int]:
        """Chooses the threads of each kernel's call, by place, and goes on with the network that has them.

        Empty where nothing is to be chosen, or the network is no faster with it.
        """
        threads = min(self.run.conditions.threads, len(self.run.cores))
        if threads == 1 or not self.run.runs_plans_here or not self.run.item.timed:
            return {}
        if self.run.manifest.hybrid is not None:
            return {}
        with self.run.process(TUNED) as process:
            counts = self._thread_counts(process, threads)
        if not counts:
            return {}
        changed = self.run.directory / "threads.kt"
        write_with_thread_counts(self.run.item.tuned, changed, ({},) * self.run.number + (counts,))
        return counts if self._go_on_if_faster(changed) else {}

    def choose_region_threads(self) -> tuple[dict[int, int], ...]:
        """Chooses the threads of the calls of each region, by place, and goes on with the result that has them.

        A region is timed by itself, on inputs that are drawn.  Empty where nothing is to be chosen, or the whole result
        is no faster with it.
        """
        threads = min(self.run.conditions.threads, len(self.run.cores))
        hybrid = read_manifest(self.run.item.tuned).hybrid
        if hybrid is None or not hybrid.regions or len(self.run.manifest.combinations) > 1:
            return ()
        if threads == 1 or not self.run.item.timed:
            return ()
        package = HybridPackage.open(self.run.item.tuned)
        found = []
        for number, region in enumerate(hybrid.regions):
            path = self.run.directory / f"threads of region{number}.kt"
            path.write_bytes(package.region(number))
            context = BaselineContext(
                rival=KINTUNE,
                subject=BaselineModel(executable=str(path)),
                tensors=read_manifest(path).inputs,
                inputs=None,
                seed=self.run.item.seed,
                threads=self.run.conditions.threads,
                cores=self.run.cores,
            )
            with BaselineProcess(region.name, context) as process:
                found.append(self._thread_counts(process, threads))
        if not any(found):
            return ()
        changed = self.run.directory / "threads of regions.kt"
        limit_region_threads(Path(self.run.item.tuned), found, changed)
        return tuple(found) if self._go_on_if_faster(changed) else ()

    def _thread_counts(self, process: BaselineProcess, threads: int) -> dict[int, int]:
        """The threads of each call that is faster on fewer than all; empty where the process fails."""
        try:
            process.prepare(self.run.conditions.prepare_seconds)
            return choose_thread_counts(profile_kernels(process, threads))
        except EngineError:  # the comparison, which runs the network again, says why
            return {}

    def _go_on_if_faster(self, changed: Path, least: float = 0.0) -> bool:
        """Goes on with the network in the file `changed` if it is no slower, or faster by the share `least` at least.

        Returns whether it is.
        """
        plain = self.run.item
        with ExitStack() as processes:
            before = processes.enter_context(self.run.process(TUNED))
            self.run.item = msgspec.structs.replace(plain, tuned=str(changed))
            after = processes.enter_context(self.run.process(TUNED, label=_CHOSEN))
            try:
                before.prepare(self.run.conditions.prepare_seconds)
                after.prepare(self.run.conditions.prepare_seconds)
                if is_faster(before, after, self.run.conditions, self._clock, least):
                    return True
            except EngineError:  # the comparison says why
                pass
        self.run.item = plain
        return False
