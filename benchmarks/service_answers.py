"""Measures how soon a service answers for a model whose records are known.

    python benchmarks/service_answers.py

A small network is tuned.  Then it is submitted again with a target that its result meets, and so is another file with
the same operators and other weights, whose subgraphs have records but which must be packaged.  Both are repeated in
turns.  The answer is the step that says "already met", the end is when the result can be downloaded.  Results go to
`notebook/results/service_answers.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from kintune.service.client import Client
from kintune.testing.serving import serving
from kintune.testing.small_onnx import write_small_onnx

RESULTS = Path(__file__).parents[1] / "notebook/results" / "service_answers.json"
FAR_AWAY_MS = 1e3


def main() -> None:
    """Tune, submit again, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--trials", type=int, default=32)
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {"the same file": [], "the same operators": []}
    with tempfile.TemporaryDirectory() as name, serving(Path(name) / "data") as service, Client(service.url) as client:
        place = Path(name)
        first = client.upload(write_small_onnx(place / "first.onnx", channels=64))["id"]
        client.wait(client.submit(first, trials=options.trials)["id"])
        for repeat in range(options.repeats):
            found["the same file"].append(answer(client, first))
            other = write_small_onnx(place / f"other{repeat}.onnx", channels=64, seed=1 + repeat)
            found["the same operators"].append(answer(client, client.upload(other)["id"]))
    document = {"date": datetime.date.today().isoformat(), "options": vars(options), "seconds": found}
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    for case, times in found.items():
        said = ", ".join(f"{what} {_median_and_worst([t[what] for t in times])}" for what in ("answered", "done"))
        print(f"{case:20} {said}")


def answer(client: Client, model: int) -> dict[str, float]:
    """Seconds from the submission to the answer, and to the end."""
    job = client.wait(client.submit(model, until=FAR_AWAY_MS)["id"])
    steps: list[dict[str, Any]] = client.job(job["id"])["steps"]
    answered = next(step["at"] for step in steps if step["reason"].startswith("already met"))
    return {"answered": answered - job["created"], "done": steps[-1]["at"] - job["created"]}


def _median_and_worst(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} s (at worst {max(seconds):.2f} s)"


if __name__ == "__main__":
    main()
