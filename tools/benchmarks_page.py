"""Writes `docs/benchmarks.md` from what `notebook/results` keeps.

    python tools/benchmarks_page.py            # or: make benchmarks-page
    python tools/benchmarks_page.py --check    # writes nothing; exit code 1 if the page is not up to date

Figures come from the CSV and JSON files that the benchmarks have written.  What these do not tell (which machine a race
ran on, limits that stand on a page of the notebook only) is in `notebook/results/headline.json`, each with its page.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "notebook/results"
PAGE = ROOT / "docs/benchmarks.md"
LONGEST = 190  # lines of a page
SECOND = "benchmarks_service.md"
"""The page on the scheduler and the service."""
SUPERSEDED = (
    *("compare-bf16-two-xeon", "compare-bf16-xeon", "compare-int8-mobilenet-xeon", "compare-paper-xeon"),
    *("compare-seven-xeon", "compare-eight-xeon", "compare-eleven-xeon", "compare-packages-xeon"),  # in the first table
)
"""Comparisons whose files were compared again later, under another name."""

NEWEST = "compare-seven-xeon-2026-11-26"
"""The comparison that was made last, where several have one date."""
COMPARED = ("Kintune", "onnxruntime", "OpenVINO", "of onnxruntime", "of OpenVINO")
# Processors by the compiler's name of the target.  It took the Intel Xeon for a rocketlake.
PROCESSORS = {
    "znver3": "Zen 3",
    "znver4": "Zen 4",
    "znver5": "Zen 5",
    "rocketlake": "Intel Xeon",
    "emeraldrapids": "Intel Xeon",
}
MACHINES = {"xeon": "Intel Xeon", "zen3": "Zen 3", "zen4": "Zen 4", "zen5": "Zen 5"}
"""Machines by what names of folders call them."""
PACKAGES_PAGES = {
    "Intel Xeon": "../notebook/2026-11-27-small-devices.md",
    "Zen 5": "../notebook/2026-11-28-trained-precisions-zen5.md",
}


def read(results: Path, name: str) -> Any:
    """A JSON file."""
    return json.loads((results / name).read_text())


def rows(path: Path) -> list[dict[str, str]]:
    """A CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *body)]


def short(value: float) -> str:
    """Three figures, or all of those before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")


def figure(text: str, digits: int = 0, *, missing: str = "") -> str:
    """A figure of a CSV file, or `missing` where none was observed."""
    return f"{float(text):.{digits}f}" if text else missing


def mean(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))


def processor(report: dict[str, Any]) -> str:
    """The machine of a tuning run."""
    return PROCESSORS[json.loads(report["target"])["mcpu"]]


def machine_of(path: Path) -> str:
    """The machine of a comparison, by the name of its folder; empty where that has none."""
    return next((name for part, name in MACHINES.items() if part in path.parent.name.split("-")), "")


def date_of(path: Path) -> str:
    """The date at the end of a file's name."""
    return path.stem[-10:]


def against(latency: dict[str, float]) -> list[str]:
    """Kintune's, onnxruntime's and OpenVINO's latency, and two ratios."""
    tuned, *rivals = (latency[name] for name in ("tuned", "onnxruntime", "openvino"))
    return [short(tuned), *map(short, rivals), *(f"{tuned / rival:.2f}" for rival in rivals)]


def packages(results: Path) -> list[str]:
    """Trained networks out of packages, a table a machine: of each network the last comparison that it was in."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    days: dict[str, dict[str, str]] = {}
    for path in sorted(
        results.glob("*/comparison.json"), key=lambda each: (_last_day(each), each.parent.name == NEWEST)
    ):
        document = json.loads(path.read_text())
        for name, file in document["comparisons"][0].get("files", {}).items():
            if str(file["model"]).startswith("models/packages/") and _is_right_in_fp32(file):
                found.setdefault(machine_of(path), {})[name] = file
                days.setdefault(machine_of(path), {})[name] = document["days"][-1]
    if not found:
        return []
    lines = [
        "## Trained networks, two minutes of tuning each",
        "",
        "Networks as they ship in Python packages. Milliseconds.",
    ]
    for machine, files in sorted(found.items()):
        page = f" ([page]({PACKAGES_PAGES[machine]}))" if machine in PACKAGES_PAGES else ""
        lines += ["", f"{machine}, {', '.join(sorted(set(days[machine].values())))}{page}:", "", *_packages_of(files)]
    return lines


def _packages_of(files: dict[str, dict[str, Any]]) -> list[str]:
    """The table of one machine, and the means over it."""
    others = ("onnxruntime", "openvino")
    body = []
    for name, file in sorted(files.items(), key=lambda one: one[1]["ratio_onnxruntime"]):
        times = [short(file[f"{runtime}_ms"]) for runtime in ("kintune", *others)]
        ratios = [f"{file[f'ratio_{other}']:.2f}" for other in others]
        runs_in = (
            "Kintune" if file["whole"] else file["runs_in"] if not file["regions"] else f"{file['regions']} regions"
        )
        body.append([name, *times, *ratios, runs_in])
    of = [mean([file[f"ratio_{other}"] for file in files.values()]) for other in others]
    return [
        *table(["network", *COMPARED, "runs in"], body),
        "",
        f"Geometric mean over the {len(files)} networks: {of[0]:.2f} of onnxruntime's time, {of[1]:.2f} of OpenVINO's.",
    ]


def _is_right_in_fp32(file: dict[str, Any]) -> bool:
    return bool(file["correct"]) and file.get("precision", "fp32") == "fp32"


def _last_day(path: Path) -> str:
    return str(json.loads(path.read_text())["days"][-1])


def _undated(path: Path) -> str:
    """The name of the folder that a comparison lies in, without its date."""
    return re.sub(r"-\d{4}-\d\d-\d\d$", "", path.parent.name)


def comparisons(results: Path) -> list[str]:
    """The runs of `experiment = "compare"`, the last of each name, a line each; nothing where none is kept.

    Comparisons of one file are left out: these networks have lines of their own in other tables.
    """
    body = []
    last = {_undated(path): path for path in sorted(results.glob("*/comparison.json"))}
    for name in SUPERSEDED:
        last.pop(name, None)
    for path in last.values():
        document = json.loads(path.read_text())
        for comparison in document["comparisons"]:
            name = ", ".join(filter(None, (_undated(path), comparison["setting"])))
            beside = {each["other"]: each for each in comparison["summary"]["against"]}
            means = []
            for other in ("onnxruntime", "openvino"):
                each = beside.get(other, {})
                whole = "" if each.get("mean_whole") is None else f"{each['mean_whole']:.2f} ({each['whole']})"
                means += [f"{each['mean']:.2f}" if each else "", whole]
            first = beside.get("onnxruntime")
            counted = first or next(iter(beside.values()), {"files": 0})
            if counted["files"] == 1:
                continue
            body.append([name, document["days"][-1], str(counted["files"]), *means, *_verdicts(first)])
    if not body:
        return []
    head = ["comparison", "date", "files", "of onnxruntime", "compiled whole", "of OpenVINO", "compiled whole"]
    return [
        "## Comparisons of many files",
        "",
        "Kintune's latency over the other's: geometric means; the worst file, and those won, level (within 2 %) and "
        "lost, are beside onnxruntime.",
        "[How they are made](compare.md).",
        "",
        *table([*head, "worst", "won", "level", "lost"], body),
    ]


def _verdicts(against: dict[str, Any] | None) -> list[str]:
    """The worst file, and how many were won, level and lost; nothing where that runtime ran no file."""
    if against is None:
        return [""] * 4
    counts = (str(len(against[verdict])) for verdict in ("won", "level", "lost"))
    return [f"{against['worst']:.2f} ({against['worst_file']})", *counts]


def zoo(results: Path) -> list[str]:
    """Networks of the zoo in fp32: of each the last result on each machine."""
    last: dict[tuple[str, str], list[str]] = {}
    for path in sorted(results.glob("end-to-end-*-10min-*.json")):
        report = read(results, path.name)
        row = [report["model"]["name"], processor(report), date_of(path), *against(report["latency_ms"])]
        _keep_newer(last, [*row, f"{report['seconds']:.0f}"])
    for path in sorted(results.glob("*/comparison.json")):
        if _undated(path) in SUPERSEDED:
            continue
        document = json.loads(path.read_text())
        for file in document["comparisons"][0].get("files", {}).values():
            if str(file["model"]).startswith("zoo:") and _is_right_in_fp32(file):
                latency = {
                    "tuned": file["kintune_ms"],
                    **{name: file[f"{name}_ms"] for name in ("onnxruntime", "openvino")},
                }
                row = [file["model"].removeprefix("zoo:"), machine_of(path), document["days"][-1], *against(latency)]
                _keep_newer(last, [*row, f"{file['seconds']:.0f}"])
    return [
        "## Networks of the zoo, ten minutes of tuning at most",
        "",
        "Machine and date in each row; one seed each. Milliseconds. A search ends early when it expects nothing more.",
        "",
        *table(
            ["network", "machine", "date", *COMPARED, "seconds"],
            [row for _, row in sorted(last.items())],
        ),
        "",
        "Pages: [Intel Xeon](../notebook/2026-11-27-programs-again.md), "
        "[its large networks](../notebook/2026-11-27-paper-networks.md), "
        "[Zen 5](../notebook/2026-11-28-programs-zen5.md), "
        "[Zen 4](../notebook/2026-11-25-two-networks-zen4.md); of mobilenet_v2 "
        "[Intel Xeon](../notebook/2026-11-22-four-networks-xeon.md), "
        "[Zen 5](../notebook/2026-11-24-four-networks-zen5.md); "
        "of vit_base [Zen 5](../notebook/2026-11-28-fewer-products.md).",
    ]


def _keep_newer(last: dict[tuple[str, str], list[str]], row: list[str]) -> None:
    """Keep a row of a network and a machine, unless one of a later day is there."""
    network, machine, day = row[:3]
    there = last.get((network, machine))
    if there is None or there[2] < day:
        last[network, machine] = row


def narrow(headline: dict[str, Any]) -> list[str]:
    """What computes narrower than fp32, beside other runtimes at the same precision."""
    shown = headline["narrow"]
    head = ["network", "machine", "computes in", "Kintune", "in fp32", "others at that precision", "error of the norm"]
    body = [
        [
            *(row[key] for key in ("network", "machine", "precision", "kintune", "fp32", "others", "error")),
            f"[page]({row['page']})",
        ]
        for row in shown["rows"]
    ]
    return [
        "## Within an error budget",
        "",
        f"Milliseconds. {shown['says']}",
        "",
        *table([*head, "where"], body),
    ]


def gpus(results: Path) -> list[str]:
    """Networks on GPUs beside PyTorch, after four minutes of tuning or more."""
    body = []
    for path in sorted(results.glob("gpu-*-*min-*.json")):
        document = read(results, path.name)
        if document["minutes"] < 4:
            continue
        ours, theirs = (statistics.median(document["ms"][name]) for name in ("kintune device", "PyTorch graph device"))
        gpu = path.stem.split("-")[3].upper()
        row = [document["network"], gpu, date_of(path), f"{document['minutes']:g}", short(ours), short(theirs)]
        body.append([*row, f"{ours / theirs:.2f}"])
    if not body:
        return []
    return [
        "## On GPUs, fp32",
        "",
        "Times on the device. Pages: [H100](../notebook/2026-11-26-gpu-longer.md), "
        "[H200](../notebook/2026-11-27-gpu-ten-minutes.md).",
        "",
        *table(["network", "GPU", "date", "minutes", "Kintune", "PyTorch, CUDA graph", "of PyTorch"], body),
    ]


def compiled(results: Path, headline: dict[str, Any]) -> list[str]:
    """What `kintune compile` gives, by the newest file."""
    path = max(results.glob("compiled-*.json"))
    body = []
    for row in read(results, path.name)["rows"]:
        medians = {name: statistics.median(times) for name, times in row["latency_ms"].items()}
        body.append([row["model"].removeprefix("zoo:"), f"{row['seconds']:.1f}", *against(medians)])
    about = headline["compiled"]
    return [
        "## Before any tuning: `kintune compile`",
        "",
        f"Machine: {about['machine']}; {path.stem[-15:-5]}. Seconds of the command, then milliseconds."
        f" [Page]({about['page']}).",
        "",
        *table(["network", "s", *COMPARED], body),
        "",
        *compiled_exports(results, about),
    ]


def compiled_exports(results: Path, about: dict[str, Any]) -> list[str]:
    """What `kintune compile` gives for networks that nothing was built for, in a sentence."""
    path = max(results.glob("exports-compiled-*.json"), default=None)
    if path is None:
        return []
    ratios = {}
    for row in read(results, path.name)["rows"]:
        medians = {name: statistics.median(times) for name, times in row["latency_ms"].items()}
        ratios[row["model"].removesuffix(".onnx")] = medians["tuned"] / medians["onnxruntime"]
    worst = max(ratios, key=lambda name: ratios[name])
    mean = statistics.geometric_mean(ratios.values())
    return [
        f"Of {len(ratios)} [exported networks]({about['exports']}) that nothing was built for, the geometric mean is"
        f" {mean:.2f} of onnxruntime's time, the worst {ratios[worst]:.2f} ({worst}).",
    ]


def races(results: Path, headline: dict[str, Any]) -> list[str]:
    """The search against the stock tuner."""
    body = []
    for name, race in headline["races"].items():
        sides = rows(results / name / "results.csv")
        started = {row["cell"]: row["started"][:10] for row in rows(results / name / "cells.csv")}
        stock = {row["cell"]: row for row in sides if row["method"] == "stock"}
        for row in sides:
            if row["method"] != "own cold":
                continue
            network = f"[{row['model'].removeprefix('zoo:')}]({race['page']}), seed {row['seed']}"
            ratios = [figure(row["time_ratio"], missing="never")]
            ratios += [figure(row[column], 2) for column in ("quality_ratio", "network_quality_ratio")]
            rival = stock[row["cell"]]
            seconds = [figure(rival[column]) for column in ("active_seconds", "seconds_to_quality")]
            seconds.append(figure(row["seconds_to_quality"], missing="never"))
            body.append([network, race["machine"], started[row["cell"]], *seconds, *ratios])
    return [
        "## Tuning speed against the stock tuner",
        "",
        "Both tune the same lowered network by turns; what they found is timed again under one protocol. Kintune",
        "starts cold, with its own tools. *There*: seconds until stock, and Kintune, are as good as stock in the",
        "end. *Faster*: stock's whole seconds over Kintune's there. *Kernels*, *network*: stock's time over",
        "Kintune's in the end, of the sum of all kernels and of the whole network. Machine and date in each row.",
        "",
        *table(
            ["network", "machine", "date", "stock s", "stock there", "Kintune there", "faster", "kernels", "network"],
            body,
        ),
        "",
        "[What this means over five networks](../notebook/2026-11-25-races-together.md).",
    ]


def scheduler(results: Path, headline: dict[str, Any]) -> list[str]:
    """How near the scheduler comes to its bound."""
    body = []
    for name, what in (
        ("thesis", "two jobs, simulated"),
        ("mix", "100 jobs on 8 hosts, simulated"),
        ("hundred", "4500 jobs on 100 hosts with losses, simulated"),
        ("thousand", "45 000 jobs on 1000 hosts with losses, simulated"),
    ):
        outcome = next(o for o in read(results, f"schedules/{name}.json")["outcomes"] if o["setup"] == "predictive")
        body.append([what, f"{outcome['makespan_s']:.0f}", f"{outcome['over_bound']:.3f}"])
    runs = [r for r in read(results, "live_schedules/runs.json")["runs"] if r["setup"] == "predictive, pipelined"]
    middle = [statistics.median(run[column] for run in runs) for column in ("seconds", "over_bound")]
    body.append(["two real jobs on two cores", f"{middle[0]:.0f}", f"{middle[1]:.3f}"])
    return [
        "## The scheduler at its bound",
        "",
        f"Policy `predictive`. Simulations do not depend on the machine ({headline['schedules']['date']}). "
        f"Real jobs: {headline['live']['machine']}; {headline['live']['date']}.",
        "",
        *table(["jobs", "all done, s", "over the bound"], body),
        "",
        "Pages: [simulated](../notebook/2026-11-21-schedules-simulated.md), "
        "[live](../notebook/2026-11-21-schedules-live.md), "
        "[a thousand hosts](../notebook/2026-11-23-thousand-hosts.md).",
    ]


def service(results: Path, headline: dict[str, Any]) -> list[str]:
    """The service, its fleet, and an hour with injected faults."""
    kills, answers, load, fleet, soak = (
        read(results, f"{name}.json")
        for name in ("service_kills", "service_answers", "service_load", "fleet_costs", "soak/soak")
    )
    again = statistics.median(answer["answered"] for answer in answers["seconds"]["the same operators"])
    one, two = (statistics.median(fleet["devices"]["seconds"][name]) for name in ("one device", "two"))
    local, ray = (statistics.median(fleet["ray"]["seconds"][name]) for name in ("local", "ray"))
    pages = load["pages_ms"]
    lost = kills["lost_or_changed"] + kills["doubled"]
    dates = ", ".join(dict.fromkeys(fleet[part]["date"] for part in ("devices", "ray")))
    body = [
        ["processes killed; measurements lost, changed or doubled", f"{sum(kills['killed'].values())}; {lost}"],
        ["jobs ended after these kills", f"{kills['jobs']['done']} of {sum(kills['jobs'].values())}"],
        ["first answer for a network whose subgraphs are known", f"{again:.1f} s"],
        [f"the portal's list of {load['options']['jobs']:,} jobs".replace(",", " "), f"{pages['/']['median']:.0f} ms"],
        [
            f"load of {load['options']['pollers']} polling clients and {load['options']['viewers']} viewers",
            f"{100 * load['share_of_a_core']['busy']:.1f} % of a core (10 % was asked for)",
        ],
        ["two jobs on two devices, of the time on one", f"{two / one:.3f}"],
        ["two jobs under Ray, of the local engine's time", f"{ray / local:.3f}"],
        [
            f"jobs ended in {soak['minutes']:.0f} minutes with a trouble every ten seconds",
            f"{soak['jobs']['endings']['finished']} of {soak['jobs']['started']}",
        ],
    ]
    return [
        "## The service",
        "",
        f"Service: machine {headline['service']['machine']}; {kills['date']}. "
        f"Devices and Ray: {headline['fleet']['machine']}; {dates}. "
        f"Trouble: {headline['soak']['machine']}; {soak['date']}.",
        "",
        *table(["what", "measured"], body),
        "",
        "Pages: [service](../notebook/2026-11-21-service.md), "
        "[several machines](../notebook/2026-11-22-several-machines.md), "
        "[an hour of trouble](../notebook/2026-11-22-soak.md).",
    ]


def page(results: Path) -> str:
    """The page on networks."""
    headline = read(results, "headline.json")
    parts = [
        [
            "# Benchmarks",
            "",
            "`python tools/benchmarks_page.py` writes this page from `notebook/results`; do not edit it.",
            "[The notebook](../notebook/index.md) has a page for each experiment, with its command.",
            f"[The scheduler and the service]({SECOND}) have a page of their own.",
            "",
            "## Method",
            "",
            *(f"* {line}" for line in headline["method"]),
        ],
        packages(results),
        comparisons(results),
        zoo(results),
        narrow(headline),
        gpus(results),
        compiled(results, headline),
        races(results, headline),
        ["## Limits", "", *(f"* {limit['says']} [Page]({limit['page']})." for limit in headline["limits"])],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def second_page(results: Path) -> str:
    """The page on the scheduler and the service."""
    headline = read(results, "headline.json")
    head = [
        "# Benchmarks of the scheduler and the service",
        "",
        "`python tools/benchmarks_page.py` writes this page, too. [Benchmarks](benchmarks.md) of networks are apart.",
    ]
    parts = [head, scheduler(results, headline), service(results, headline)]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the page is not up to date")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    texts = {
        options.page: page(options.results),
        options.page.with_name(SECOND): second_page(options.results),
    }
    for path, text in texts.items():
        if len(text.splitlines()) > LONGEST:
            print(f"{path}: {len(text.splitlines())} lines, {LONGEST} at most; shorten it", file=sys.stderr)
            return 1
    for path, text in texts.items():
        if not options.check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path} is not up to date; make benchmarks-page writes it", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
