"""Compares two installations of Kintune: each tunes the same models, and the results are run in turns.

    python benchmarks/versions.py MODEL... --kintune before=PATH --kintune after=PATH --out FILE.json

PATH is the `kintune` command of an installation.  For each model and seed, each tunes the model for a number of minutes
with empty records; the first to tune alternates with the seed.  Then the results are run many times in processes of
their own, in turns, since the memory layout differs between processes and the machine's speed varies.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kintune.hardware.cpu import inspect_machine

_RUN = """
import sys, time, statistics, kintune
try:
    from kintune.runtime.inputs import draw_inputs
except ImportError:  # an older installation
    from kintune.runtime.executable import draw_inputs
model = kintune.open(sys.argv[1])
inputs, times, runs = draw_inputs(model.inputs, 0), [], int(sys.argv[2])
for _ in range((runs + 1) // 2):
    model.run(inputs)
for _ in range(runs):
    start = time.perf_counter()
    model.run(inputs)
    times.append(time.perf_counter() - start)
print(1e6 * statistics.median(times))
"""


def main() -> None:
    """Tune and run with both installations, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--kintune", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--turns", type=int, default=9, help="times that each result is run")
    parser.add_argument("--runs", type=int, default=600, help="timed runs a turn, after half as many untimed ones")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    commands = dict(each.split("=", 1) for each in options.kintune)
    found = []
    for model in options.models:
        with tempfile.TemporaryDirectory() as directory:
            found += _compare(
                model, commands, options.seeds, options.minutes, options.turns, options.runs, Path(directory)
            )
        options.out.write_text(
            json.dumps({"machine": inspect_machine().cpu, "minutes": options.minutes, "runs": found}, indent=1) + "\n"
        )


def _compare(
    model: str, commands: dict[str, str], seeds: int, minutes: float, turns: int, runs: int, directory: Path
) -> list[dict[str, Any]]:
    """Return a row for each seed and installation; prints a line for each installation to standard error."""
    rows: list[dict[str, Any]] = []
    names = list(commands)
    for seed in range(seeds):
        for name in names[seed % len(names) :] + names[: seed % len(names)]:
            stem = directory / f"{name}-{seed}"
            tune = [commands[name], "tune", model, "--quiet", "--no-kin", f"--minutes={minutes}", f"--seed={seed}"]
            files = [f"--records={stem}.sqlite", f"--output={stem}.kt", f"--json={stem}.json"]
            subprocess.run([*tune, *files], check=True, stdout=subprocess.DEVNULL)
            report = json.loads(Path(f"{stem}.json").read_text())
            rows.append({"model": model, "seed": seed, "kintune": name, "trials": report["trials"], "us": []})
    for turn in range(turns):
        for row in rows[turn % len(rows) :] + rows[: turn % len(rows)]:
            python = str(Path(commands[row["kintune"]]).parent / "python")
            file = f"{directory}/{row['kintune']}-{row['seed']}.kt"
            answer = subprocess.run([python, "-c", _RUN, file, str(runs)], check=True, capture_output=True, text=True)
            row["us"].append(round(float(answer.stdout), 1))
    for name in names:
        medians = [statistics.median(row["us"]) for row in rows if row["kintune"] == name]
        listed = ", ".join(f"{median:.0f}" for median in medians)
        print(f"{model} {name}: {statistics.median(medians):.0f} us (by seed {listed})", file=sys.stderr)
    return rows


if __name__ == "__main__":
    main()
