"""Times the steps of building and of timing measured candidates again; for `trial_costs.py`.

Everything runs in processes of its own, on the cores that a job would take.
"""

from __future__ import annotations

import cProfile
import json
import math
import multiprocessing
import os
import pstats
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from kintune.core.candidate import UNTUNED, Candidate, Sketch
from kintune.core.stage_requests import BuildContext, Built, ProfileContext, ProfileItem
from kintune.core.stage_results import StageName
from kintune.records import Store
from kintune.records.measurements import Measurement
from kintune.tuning.job.stage_factory import SLOW

__all__ = ["Sample", "build_steps", "in_process", "pinned", "profile_steps", "sample_of"]

T = TypeVar("T")

_together: Any = None  # a barrier: no core begins before all are ready


class Sample(NamedTuple):
    """Some of the measured candidates of a run, in their order, and what is needed to build them again."""

    rows: list[Measurement]
    modules: dict[str, bytes]
    sketches: dict[str, Sketch]
    target: str
    operands: str
    best_us: dict[str, float]
    run_us: float
    """What one run takes: the mean over all candidates that ran, not only these."""
    built_s: float
    """What all these candidates took to be built in the run, each on one core."""
    other_built_s: float
    """The same of whatever else was built: untuned programs, trivial subgraphs, what failed or took too long."""
    scale: float
    """What one of all took to be built in the run over what one of `rows` did."""


def sample_of(records: Path, count: int, seed: int) -> Sample:
    """`count` of the tuned candidates that ran, from the records of one run.

    A few candidates take ten times as long to build as most, and have a large share of the total.  So the sample is
    taken at equal distances from the candidates sorted by build time.
    """
    with Store.open(records) as store:
        rows = [row for row in store.measurements.find() if row.outcome.ok and row.candidate.sketch != UNTUNED]
        builds = _builds(store)
        first_s = dict(reversed(builds))
        rows.sort(key=lambda row: (first_s[row.candidate.digest], row.candidate))
        count = min(count, len(rows))
        places = (np.arange(count) + np.random.default_rng(seed).random()) * len(rows) / count
        picked = sorted((rows[int(i)] for i in places), key=lambda row: row.candidate)
        workloads = {row.candidate.workload for row in picked}
        of_all = [first_s[row.candidate.digest] for row in rows]
        of_these = [first_s[row.candidate.digest] for row in picked]
        return Sample(
            rows=picked,
            modules={w: store.workloads.module(w) for w in workloads},
            sketches={s.digest: s for s in store.workloads.sketches(workloads)},
            target=store.devices.list()[0].target,
            operands=store.devices.get(rows[0].device_type).operands,
            best_us={w: min(r.outcome.median_us for r in rows if r.candidate.workload == w) for w in workloads},
            run_us=float(np.mean([row.outcome.median_us for row in rows])),
            built_s=sum(of_all),
            other_built_s=sum(seconds for _, seconds in builds) - sum(of_all),
            scale=float(np.mean(of_all) / np.mean(of_these)),
        )


def _builds(store: Store) -> list[tuple[str, float]]:
    """The candidates built by the one run in these records, by digest, with the seconds of each build."""
    (run,) = store.runs.list()
    events = [event for event in store.events.history(run.run_id) if event.kind == StageName.BUILD]
    return [(msgspec.msgpack.decode(event.payload, type=Built).candidate, event.seconds) for event in events]


def pinned(cores: Sequence[int], work: Callable[[Sample], T], sample: Sample) -> list[T]:
    """Run `work` on all of these cores at once; returns the result of each."""
    spawn = multiprocessing.get_context("spawn")
    together = spawn.Barrier(len(cores))
    with ProcessPoolExecutor(len(cores), spawn, _start, (together,)) as pool:
        return [future.result() for future in [pool.submit(_on, core, work, sample) for core in cores]]


def in_process(work: Callable[[Sample], T], sample: Sample) -> T:
    """Run `work` in a process of its own, not pinned to cores, and return its result."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, sample).result()


def _start(together: Any) -> None:
    global _together
    _together = together
    os.environ["TVM_NUM_THREADS"] = "1"


def _on(core: int, work: Callable[[Sample], T], sample: Sample) -> T:
    os.sched_setaffinity(0, {core})
    return work(sample)


def build_steps(sample: Sample) -> dict[str, float]:
    """Mean milliseconds of each step of building, on the core of this process."""
    import tvm
    import tvm_ffi
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    from kintune.compiler.graph.own_rules import own_rules
    from kintune.compiler.space.features import FeatureExtractor
    from kintune.compiler.space.replay import Replayer, load_workload
    from kintune.hardware.toolchain import link

    target = tvm.target.Target(json.loads(sample.target))
    spent: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def step(name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        spent[name] += time.perf_counter() - begun

    replayers = {workload: Replayer(load_workload(text), target) for workload, text in sample.modules.items()}
    extractors = {workload: FeatureExtractor(replayer.context) for workload, replayer in replayers.items()}
    generate: Callable[..., Any] = tvm.get_global_func("target.build.llvm")
    _together.wait()
    for row in sample.rows:
        candidate = row.candidate
        with step("replay"):
            schedule = replayers[candidate.workload](sample.sketches[candidate.sketch], candidate).schedule
        with step("(full features)"):
            extractors[candidate.workload]([schedule])
        passes = tvm.transform.PassContext(opt_level=3, config={"tirx.disable_assert": True})
        with passes, own_rules(target):
            with step("passes"):
                module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)
                module = tvm.tirx.transform.BindTarget(target.with_host(target))(module)
                pipeline, finish, _ = tvm.tirx.get_default_tir_pipeline(target)
                module = tvm.tirx.transform.SkipAssert()(finish()(pipeline(module)))
            with step("code generation"):
                library = generate(module, target)
            with tempfile.TemporaryDirectory() as folder:
                with step("code generation"):
                    library.write_to_file(f"{folder}/program.o", "o")
                with step("linking"):
                    link(f"{folder}/program.so", [f"{folder}/program.o"])
                with step("loading"):
                    tvm_ffi.load_module(f"{folder}/program.so", keep_module_alive=False)
    return {name: 1e3 * seconds / len(sample.rows) for name, seconds in spent.items()}


_PARTS = {
    "loading": ("backend.py", "load"),
    "making and filling arguments": ("arguments.py", "bind"),
    "the first run": ("run.py", "_first_run"),
    "repeats": ("interference.py", "timed"),
    "comparing": ("run.py", "_differences"),
    "poisoning": ("arguments.py", "poison"),
    "looking for damage": ("arguments.py", "damage"),
}
_TURNS = 3
_INSIDE = {
    "(of repeats: sending weights out of the caches)": ("backend.py", "flush_to_memory"),
    "(of repeats: sending weights to the last cache)": ("backend.py", "flush_to_last_level"),
    "(of repeats: pauses after disturbances)": ("~", "<built-in method time.sleep>"),
}


def profile_steps(sample: Sample) -> dict[str, float]:
    """Mean milliseconds of each step of timing, on all cores of the device; of the whole, `all`.

    The best times are known from the start, as they nearly are in the later rounds of a job.  `(untuned)` is the run of
    a workload's untuned program before its first candidate, in milliseconds for each workload.  `(raced)` and
    `(all repeated)` are the whole with and without giving up slow candidates early: medians of turns.
    """
    from kintune.compiler.build import CandidateBuilder
    from kintune.measure.run import Runner
    from kintune.workers.device_worker import open_device

    about, _ = open_device("native", 0)
    making = BuildContext(about.device_type.target, sample.modules, sample.sketches)
    builder = CandidateBuilder(making.target)
    references = {w: builder.build(making, Candidate.untuned(w)) for w in sample.modules}
    items = [ProfileItem(r.candidate.workload, builder.build(making, r.candidate)) for r in sample.rows]
    runner = Runner(about.cores)
    protocol = about.protocol.with_operands(sample.operands)
    raced = ProfileContext(protocol, references, best_us=sample.best_us, slow=SLOW)
    runner.begin(raced)
    began = time.perf_counter()
    for workload, reference in references.items():
        runner.profile(ProfileItem(workload, reference))
    untuned_s = time.perf_counter() - began
    profiler = cProfile.Profile()
    began = time.perf_counter()
    profiler.enable()
    for item in items:
        runner.profile(item)
    profiler.disable()
    found = {"all": time.perf_counter() - began}
    spent: defaultdict[tuple[str, str], float] = defaultdict(float)
    for (file, _, name), (_, _, _, cumulative, _) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        spent[Path(file).name, name] += cumulative
    found |= {step: spent[where] for step, where in (_PARTS | _INSIDE).items()}
    found["other"] = found["all"] - sum(found[step] for step in _PARTS)
    turns: dict[str, list[float]] = {"(raced)": [], "(all repeated)": []}
    for _ in range(_TURNS):
        for name, context in zip(turns, (raced, msgspec.structs.replace(raced, slow=math.inf)), strict=True):
            runner.begin(context)
            began = time.perf_counter()
            for item in items:
                runner.profile(item)
            turns[name].append(time.perf_counter() - began)
    found |= {name: statistics.median(seconds) for name, seconds in turns.items()}
    each = {step: 1e3 * seconds / len(items) for step, seconds in found.items()}
    return each | {"(untuned)": 1e3 * untuned_s / len(references)}
