"""Trace one candidate's round and one tuning request through the code, and count the files that they pass.

    python tools/trace_paths.py [--model FILE.onnx] [--trials N] [--json FILE]

It tunes a small network as `kintune tune` does.  In every process that takes part, each call into a file of `kintune`
is looked at.  A file lies on the way of a *candidate* if one of its functions, called between the selection and the
record, is handed that candidate: as a value, by its digest, or inside a message or a payload.  Of all candidates that
were measured and did not end up in the result, the one with the most files counts.  A file is entered by the *request*
when a function of it, called from another file, is handed the request: `TuneConfig`, `TuneRequest`, or `TuningRun`.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

TRACER = r"""
import os, re, sys, threading

OUT = os.environ.get("KINTUNE_TRACE_DIR")
if OUT:
    HERE = os.environ["KINTUNE_TRACE_SOURCES"]
    DIGEST = re.compile(r"[0-9a-f]{32}")
    IN_BYTES = re.compile(rb"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
    REQUESTS = {"TuneConfig", "TuneRequest", "TuningRun"}
    file = open(os.path.join(OUT, f"{os.getpid()}.txt"), "a", buffering=1)
    seen = set()
    candidates = set()
    local = threading.local()

    def digests(value, depth=0):
        if isinstance(value, str):
            if len(value) == 32 and DIGEST.fullmatch(value):
                yield value
        elif isinstance(value, bytes):
            if len(value) < 1 << 20:
                yield from (found.decode() for found in IN_BYTES.findall(value))
        elif depth < 3 and isinstance(value, (list, tuple, set, frozenset)):
            for item in list(value)[:64]:
                yield from digests(item, depth + 1)
        elif depth < 3 and isinstance(value, dict):
            for key, item in list(value.items())[:64]:
                yield from digests(key, depth + 1)
                yield from digests(item, depth + 1)
        elif depth < 3 and not isinstance(value, type) and hasattr(type(value), "__struct_fields__"):
            if type(value).__name__ == "Candidate":
                if value.digest not in candidates:
                    candidates.add(value.digest)
                    file.write(f"C {value.digest}\n")
                yield value.digest
                return
            for name in type(value).__struct_fields__:
                yield from digests(getattr(value, name, None), depth + 1)

    def hook(frame, event, _):
        if event != "call" or getattr(local, "busy", False):
            return
        code = frame.f_code
        if not code.co_filename.startswith(HERE):
            return
        local.busy = True
        try:
            name = code.co_filename[len(HERE):]
            count = code.co_argcount + code.co_kwonlyargcount
            values = [frame.f_locals.get(each) for each in code.co_varnames[:count]]
            for digest in {each for value in values for each in digests(value)}:
                if (digest, name) not in seen:
                    seen.add((digest, name))
                    file.write(f"D {digest} {name} {code.co_name}\n")
            if any(type(value).__name__ in REQUESTS for value in values):
                caller = frame.f_back
                if caller is not None and caller.f_code.co_filename != code.co_filename:
                    file.write(f"R {name} {code.co_name}\n")
        except Exception as error:
            file.write(f"E {type(error).__name__} {error}\n")
        finally:
            local.busy = False

    threading.setprofile(hook)
    sys.setprofile(hook)
"""


def traced(model: Path, trials: int, folder: Path) -> list[list[str]]:
    """Tune `model`, and return what was noted: lines cut into words, those of the front process first."""
    tracer, notes = folder / "tracer", folder / "notes"
    tracer.mkdir()
    notes.mkdir()
    (tracer / "sitecustomize.py").write_text(TRACER)
    path = os.pathsep.join([str(tracer), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    sources = f"{ROOT / 'src' / 'kintune'}{os.sep}"
    environment = {
        **os.environ, "PYTHONPATH": path, "KINTUNE_TRACE_DIR": str(notes), "KINTUNE_TRACE_SOURCES": sources,
        "KINTUNE_LOCK_DIR": str(folder / "locks"),
    }  # fmt: skip
    command = [sys.executable, "-m", "kintune", "tune", str(model), "--trials", str(trials), "--quiet"]
    command += ["--records", str(folder / "records.sqlite"), "--output", str(folder / "out.kt")]
    front = subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
    if front.wait() != 0:
        sys.exit(f"the run failed with exit code {front.returncode}")
    files = sorted(notes.glob("*.txt"), key=lambda file: file.stem != str(front.pid))
    return [line.split() for file in files for line in file.read_text().splitlines()]


def way_of_a_candidate(lines: list[list[str]]) -> dict[str, list[str]]:
    """Return the files on the way of the candidate that passes most of them, with functions of each."""
    candidates = {words[1] for words in lines if words[0] == "C"}
    ways: dict[str, dict[str, list[str]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for kind, *words in lines:
        if kind == "D" and words[0] in candidates:
            digest, file, function = words
            ways[digest][file].append(function)
    measured = [way for way in ways.values() if "measure/run.py" in way and "compiler/graph/assemble.py" not in way]
    return max(measured, key=len, default={})


def entries_of_the_request(lines: list[list[str]]) -> collections.Counter[str]:
    """Return how often each file is entered with the request."""
    return collections.Counter(words[0] for kind, *words in lines if kind == "R")


def main() -> None:
    """Trace, and print the table that docs/architecture.md shows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=ROOT / "benchmarks" / "one_layer.onnx")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kintune-trace-") as folder:
        lines = traced(options.model.resolve(), options.trials, Path(folder))
    for words in lines:
        if words[0] == "E":
            sys.exit(f"the tracer failed: {' '.join(words[1:])}")
    way, entries = way_of_a_candidate(lines), entries_of_the_request(lines)
    print(f"a candidate's round: {len(way)} files")
    for file, functions in sorted(way.items()):
        print(f"  {file}: {', '.join(dict.fromkeys(functions))}")
    print(f"the request: {len(entries)} files, each entered at most {max(entries.values(), default=0)} times")
    for file, count in entries.items():
        print(f"  {count} {file}")
    if options.json is not None:
        found = {"candidate": {file: sorted(set(names)) for file, names in way.items()}, "request": dict(entries)}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
