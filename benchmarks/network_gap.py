"""Splits a network's time into its kernels timed alone, the same kernels inside the network, and the rest.

    python benchmarks/network_gap.py zoo:mobilenet_v2 zoo:mobilenet_v2_0.5 --minutes 1.5

Each network is tuned cold.  Then, in turns and in one process: it is run; it is run with a clock read before and after
each call; and each chosen program is timed alone, with weights cold, cool and warm.  Before and after each of these the
core-to-core latency is measured (`measure/core_locality.py`), which changes when a host moves the cores of a virtual
machine.  Figures are grouped by it, and left out where it changed in between.  The results are medians over all turns.
They go to `notebook/results/network_gap.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from local_workers import build, builders
from one_run import tune

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.measurement_protocol import OPERANDS
from kintune.core.stage_requests import BuildContext, ProfileContext, ProfileItem, kernel_name
from kintune.hardware.cpu import data_caches, inspect_machine
from kintune.measure.core_locality import APART_RATIO
from kintune.records import Store

RESULTS = Path(__file__).parents[1] / "notebook/results" / "network_gap.json"
_RUNS = 40  # a turn
_SLOW = 1e9  # times the best: no program is given up, and none waits for the cores

Times = dict[str, float]


class _Network:
    """A tuned network; the runtime's own hook times its kernels."""

    def __init__(self, package: Path) -> None:
        from kintune.runtime.executable import Executable
        from kintune.runtime.inputs import draw_inputs

        self.executable = Executable.open(package)
        self._inputs = draw_inputs(self.executable.inputs, 0)
        self.executable.run(self._inputs)

    def whole_us(self) -> Times:
        taken = []
        for _ in range(_RUNS):
            began = time.perf_counter()
            self.executable.run(self._inputs)
            taken.append(1e6 * (time.perf_counter() - began))
        return {"network": statistics.median(taken)}

    def calls_us(self) -> Times:
        """The microseconds of the calls of one run, by kernel."""
        found = defaultdict(list)
        for _ in range(_RUNS):
            run: Times = defaultdict(float)
            for call in self.executable.profile(self._inputs):
                run[call.kernel] += call.us
            for kernel, taken in run.items():
                found[kernel].append(taken)
        return {kernel: statistics.median(taken) for kernel, taken in found.items()}


class _States:
    """Figures grouped by the core-to-core latency during the measurement."""

    def __init__(self, ratio: Callable[[], float]) -> None:
        self._ratio = ratio
        self.taken: list[tuple[float, float, str, Times]] = []

    def take(self, name: str, measure: Callable[[], Times]) -> None:
        before = self._ratio()
        times = measure()
        self.taken.append((before, self._ratio(), name, times))

    def medians(self) -> dict[str, dict[str, Times]]:
        """Median times by state of the cores and by name."""
        least = sorted(ratio for before, after, _, _ in self.taken for ratio in (before, after))[1]
        found: dict[str, dict[str, dict[str, list[float]]]] = {}
        for before, after, name, times in self.taken:
            apart = {ratio > APART_RATIO * least for ratio in (before, after)}
            if len(apart) == 1:
                state = found.setdefault("apart" if apart.pop() else "together", {}).setdefault(name, {})
                for key, taken in times.items():
                    state.setdefault(key, []).append(taken)
        return {
            state: {name: {k: statistics.median(t) for k, t in times.items()} for name, times in names.items()}
            for state, names in found.items()
        }


def examine(model: str, minutes: float, turns: int, directory: Path) -> dict[str, Any]:
    """The figures of one network."""
    if not (directory / "model.kt").exists():
        directory.mkdir(parents=True, exist_ok=True)
        tune(model, minutes, directory)
    with Store.open(directory / "records.sqlite") as store:
        measured = {m.candidate.digest: m.candidate for m in store.measurements.find() if m.outcome.ok}
        digests = sorted({candidate.workload for candidate in measured.values()})
        modules = {digest: store.workloads.module(digest) for digest in digests}
        sketches = {sketch.digest: sketch for sketch in store.workloads.sketches(digests)}
    network = _Network(directory / "model.kt")
    programs = [measured[digest] for digest in network.executable.manifest.chosen.values()]
    return _take_apart(model, network, [p for p in programs if p.sketch != UNTUNED], modules, sketches, turns)


def _functions(model: str, target: str) -> tuple[dict[str, str], dict[str, int]]:
    """The workload of each function of the network, and how often each workload is called."""
    import tvm

    from kintune.compiler.graph.lower import lower
    from kintune.models import parse_ref
    from kintune.models.importer import load

    lowered = lower(load(parse_ref(model)).module, tvm.target.Target(json.loads(target)))
    return lowered.functions, {w.digest: w.occurrences for w in lowered.workloads}


def _take_apart(
    model: str,
    network: _Network,
    programs: list[Candidate],
    modules: Mapping[str, Any],
    sketches: Mapping[str, Any],
    turns: int,
) -> dict[str, Any]:
    from kintune.hardware.cores import pinned_to
    from kintune.measure.core_locality import core_latency
    from kintune.measure.run import Runner
    from kintune.workers.device_worker import open_device

    about, _ = open_device("native", 0)
    runner = Runner(about.cores)
    with builders(len(about.cores), BuildContext(about.device_type.target, dict(modules), dict(sketches))) as pool:
        built = dict(zip(programs, pool.map(build, programs), strict=True))

    def alone(operands: str) -> Times:
        runner.begin(ProfileContext(about.protocol.with_operands(operands), {}, slow=_SLOW))
        outcomes = {p.workload: runner.profile(ProfileItem(p.workload, built[p])) for p in programs}
        return {workload: outcome.median_us for workload, outcome in outcomes.items()}

    def cost() -> float:
        with pinned_to(about.cores[0]):
            return core_latency(len(about.cores), data_caches(inspect_machine())[1]).ratio()

    states = _States(cost)
    for _ in range(turns):
        states.take("whole", network.whole_us)
        states.take("calls", network.calls_us)
        for operands in OPERANDS:
            states.take(operands, partial(alone, operands))
    functions, occurrences = _functions(model, about.device_type.target)
    functions |= {kernel_name(program.digest): program.workload for program in programs}  # those built before packaging
    found: dict[str, Any] = {"handovers": [[round(b, 2), round(a, 2), name] for b, a, name, _ in states.taken]}
    for state, names in states.medians().items():
        found[state] = _table(names, functions, occurrences, {program.workload for program in programs})
    return found


def _table(
    names: dict[str, Times], functions: Mapping[str, str], occurrences: Mapping[str, int], tuned: set[str]
) -> dict[str, Any]:
    inside: Times = defaultdict(float)
    others: Times = defaultdict(float)
    for symbol, taken in names.get("calls", {}).items():
        workload = functions.get(symbol.removesuffix("_prepacked"), "")
        if workload in tuned:
            inside[workload] += taken / occurrences[workload]
        else:
            others[symbol] += taken
    columns = {"inside": inside, **{o: names[o] for o in OPERANDS if o in names}}
    rows = [
        {
            "workload": w,
            "calls": occurrences[w],
            **{c: round(times[w], 2) for c, times in columns.items() if w in times},
        }
        for w in sorted(tuned, key=lambda w: -occurrences[w] * inside[w])
    ]
    sums = {
        c: round(sum(occurrences[w] * t for w, t in times.items() if w in tuned), 1) for c, times in columns.items()
    }
    network = round(names.get("whole", {}).get("network", 0.0), 1)
    return {"network": network, **sums, "others": {s: round(t, 1) for s, t in others.items()}, "subgraphs": rows}


def main() -> None:
    """All models, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--minutes", type=float, default=1.5)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--keep", type=Path, help="folder for what is tuned, which is taken from there if it is there")
    options = parser.parse_args()
    networks = {}
    with tempfile.TemporaryDirectory() as directory:
        for model in options.models:
            kept = (options.keep or Path(directory)) / model.removeprefix("zoo:")
            networks[model] = examine(model, options.minutes, options.turns, kept)
            for state in ("together", "apart"):
                sums = {k: v for k, v in networks[model].get(state, {}).items() if k not in ("subgraphs", "others")}
                print(f"{model}, cores {state}, us: {sums}", flush=True)
    document = {"date": datetime.date.today().isoformat(), "machine": inspect_machine().cpu, "networks": networks}
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
