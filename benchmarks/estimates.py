"""How well the programs' estimates of cycles order what was measured.

    python benchmarks/estimates.py [FILE ...] [--program tiled ...] [--output table.json]

Reads the measurements in `notebook/records`, or records that `kintune records export` wrote.  Decisions of earlier
programs are taken for those of today's where they say the same.  The measured candidates of a program and a workload on
a type of device are a group, of four at least.  The table has for each program and CPU the number of groups and
candidates, the mean rank correlation (Spearman) of estimates and times within a group, and the regret: how many times
as long the candidate of the least estimate takes as the fastest one of the group, as a geometric mean and at the 90th
percentile.  By chance, the correlation is 0.  Candidates that the estimate refuses are left out.  Nothing is timed, so
other work may run.  Tables of two states of the sources compare two models.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kintune.core.candidate import Decision, Sketch
from kintune.core.measurement_protocol import DeviceType
from kintune.records import Store
from kintune.records.portable import add_contents, exported_contents
from kintune.search.processor import Processor
from kintune.search.sketch_program import program_of
from kintune_lab.corpus import SUFFIX, read_corpus

RECORDS = Path(__file__).parents[1] / "notebook/records"
CACHES = {
    "sapphirerapids": (48 << 10, 2 << 20, 64 << 20),
    "emeraldrapids": (48 << 10, 2 << 20, 64 << 20),
    "znver4": (32 << 10, 1 << 20, 32 << 20),
    "znver5": (48 << 10, 1 << 20, 32 << 20),
}
"""Data caches by CPU, since records do not have them."""

LEAST = 4  # candidates of a group
ALL = 1 << 30  # candidates of a rule, in place of the number that programs limit it to by this name
_FIRST = "_FIRST"


class Group(NamedTuple):
    """The program that was measured, as it was called then, and the CPU; of each of its candidates (place in the order
    of today's estimates, time in us).
    """

    program: str
    cpu: str
    pairs: list[tuple[int, float]]

    @property
    def correlation(self) -> float:
        """Spearman's rank correlation of estimates and times."""
        estimates, times = (np.argsort(np.argsort(column)) for column in zip(*self.pairs, strict=True))
        return float(np.corrcoef(estimates, times)[0, 1])

    @property
    def regret(self) -> float:
        """The time of the candidate with the least estimate over the least time."""
        return min(self.pairs)[1] / min(time for _, time in self.pairs)


def groups_of(path: Path, programs: Sequence[str]) -> Iterator[Group]:
    """The groups of a file."""
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "records.sqlite") as store:
        add_contents(store, read_corpus(path) if path.suffix == SUFFIX else exported_contents(path))
        devices = {device: store.devices.get(device) for device in {m.device_type for m in store.measurements.find()}}
        for workload in store.workloads.list():
            sketches = {s.digest: s for s in store.workloads.sketches([workload.digest])}
            times: dict[tuple[str, str], dict[tuple[Decision, ...], float]] = defaultdict(dict)
            for measured in store.measurements.find(workloads=[workload.digest]):
                name = program_of(sketches[measured.candidate.sketch]) if measured.candidate.sketch in sketches else ""
                is_wanted = name and (not programs or name.partition(".")[0] in programs)
                if is_wanted and math.isfinite(measured.believed_us):
                    key = measured.device_type, measured.candidate.sketch
                    times[key][measured.candidate.decisions] = measured.believed_us
            for (device, sketch), found in times.items():
                if len(found) >= LEAST:
                    module = store.workloads.module(workload.digest)
                    yield from _group(sketches[sketch], devices[device], module, found)


def _group(
    sketch: Sketch, device: DeviceType, saved: bytes, found: Mapping[tuple[Decision, ...], float]
) -> Iterator[Group]:
    from kintune.compiler.programs.registry import program_named
    from kintune.compiler.space.conversion import converted, is_of_today
    from kintune.compiler.space.replay import load_workload
    from kintune.errors import BuildError

    module, target = load_workload(saved), json.loads(device.target)
    decided: Sequence[tuple[Decision, ...] | None] = list(found)
    recorded = program_of(sketch).partition(".")[0]
    try:
        if not is_of_today(program_of(sketch)):
            sketch, decided = converted(sketch, list(found), module)
        program, variant = program_named(program_of(sketch))
        cpu = str(target.get("mcpu", device.model))
        machine = Processor.of(device.isa, device.threads, CACHES.get(cpu, ()))
        ranked = {decisions: place for place, decisions in enumerate(_all(program, module, variant, machine))}
    except BuildError:
        return
    pairs = zip(decided, found.values(), strict=True)
    known = [(ranked[decisions], time) for decisions, time in pairs if decisions is not None and decisions in ranked]
    if len(known) >= LEAST:
        yield Group(recorded, cpu, known)


def _all(program: Any, module: Any, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
    """All decisions that the program's rule knows, those of the least estimate first."""
    limited = [
        module for name, module in sys.modules.items() if name.startswith("kintune.") and hasattr(module, _FIRST)
    ]
    first = [getattr(module, _FIRST) for module in limited]
    for home in limited:
        setattr(home, _FIRST, ALL)
    try:
        return list(program.rule(module, variant, machine))
    finally:
        for home, number in zip(limited, first, strict=True):
            setattr(home, _FIRST, number)


def table(groups: Sequence[Group]) -> dict[str, dict[str, float]]:
    """The rows of the table, by program and CPU."""
    by: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by[f"{group.program} {group.cpu}"].append(group)
    return {
        name: {
            "groups": len(own),
            "candidates": sum(len(group.pairs) for group in own),
            "correlation": round(float(np.mean([group.correlation for group in own])), 3),
            "regret": round(math.exp(float(np.mean([math.log(group.regret) for group in own]))), 3),
            "regret_90": round(float(np.percentile([group.regret for group in own], 90)), 3),
        }
        for name, own in sorted(by.items())
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--program", action="append", default=[])
    parser.add_argument("--output", type=Path, help="the table as JSON")
    options = parser.parse_args()
    found: list[Group] = []
    for path in options.files or sorted(RECORDS.glob(f"*{SUFFIX}")):
        found += groups_of(path, options.program)
        print(f"{path.name}: {len(found)} groups so far", file=sys.stderr, flush=True)
    rows = table(found)
    print("| program | CPU | groups | candidates | rank correlation | regret | 90th percentile |")
    print("|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        program, cpu = name.split(" ", 1)
        values = " | ".join(str(value) for value in row.values())
        print(f"| {program} | {cpu} | {values} |")
    if options.output:
        options.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
