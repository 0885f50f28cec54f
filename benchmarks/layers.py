"""Keeps the layers of networks in one file: each workload, and what each program of our own offers for it.

    python benchmarks/layers.py collect zoo:resnet50 models/*.onnx [--suite N] [--shape INPUT=DIMxDIM]
    python benchmarks/layers.py offers [--write]
    python benchmarks/layers.py list

`collect` lowers the models for each of `TARGETS`, and ONNX's suite or each N-th case of it, and adds the workloads that
some program of ours computes to `notebook/results/layers.xz`; shapes of known files come from `compile_times.py`.
`offers` asks this version of the programs again, and tells where one offers no more what it offered: exit code 1.  With
`--write` the file has what they offer now, by the names and versions of today.  `list` prints a line a layer.  Nothing
is timed, so other work may run.  `race_layers.py` races them.
"""

from __future__ import annotations

import argparse
import lzma
import pickle
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

FILE = Path(__file__).parents[1] / "notebook/results" / "layers.xz"

TARGETS = {
    "amx": {"kind": "llvm", "mcpu": "sapphirerapids"},
    "avx512": {"kind": "llvm", "mcpu": "znver4"},
    "avx2": {"kind": "llvm", "mcpu": "core-avx2"},
    "avx_vnni": {"kind": "llvm", "mcpu": "alderlake"},
    "i8mm": {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-v1"},
    "dotprod": {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76"},
}
"""The processors whose programs are asked; each has instructions of its own."""

_VECTORS = {"amx": (16, 32), "avx512": (16, 32), "i8mm": (4, 32), "dotprod": (4, 32)}  # lanes and registers

THREADS = 2
PRECISIONS = frozenset({"bf16"})


class Layer(msgspec.Struct):
    """A workload of some networks.

    `offers` has for each of `TARGETS` the programs that compute it, with their variants, and the decisions that the
    rule of each names first.  `flops` are those of one run, `networks` the models that have it, at most ten.
    """

    digest: str
    title: str
    module: bytes
    flops: float
    networks: list[str]
    offers: dict[str, dict[str, list[list[int]]]]


def read(path: Path = FILE) -> dict[str, Layer]:
    """The layers of the file by digest; none where it does not exist."""
    if not path.exists():
        return {}
    return {each.digest: each for each in msgspec.msgpack.decode(lzma.decompress(path.read_bytes()), type=list[Layer])}


def write(layers: dict[str, Layer], path: Path = FILE) -> None:
    """Replace the file by these layers, those of the most arithmetic first."""
    ordered = sorted(layers.values(), key=lambda each: (-each.flops, each.digest))
    path.write_bytes(lzma.compress(msgspec.msgpack.encode(ordered), preset=9))


def target_named(name: str) -> Any:
    """The target of this name in `TARGETS`."""
    import tvm

    return tvm.target.Target({**TARGETS[name], "num-cores": THREADS})


def offers_of(module: Any) -> dict[str, dict[str, list[list[int]]]]:
    """What each program offers for a workload on each target; targets without any are left out."""
    from kintune.compiler.programs.registry import applicable
    from kintune.search.processor import Processor

    found: dict[str, dict[str, list[list[int]]]] = {}
    for name in TARGETS:
        target = target_named(name)
        machine = Processor(*_VECTORS.get(name, (8, 16)), THREADS)
        for program, variant, spelled in applicable(module, target, PRECISIONS):
            decided = program.rule(module, variant, machine)
            first = [list(each) for each in decided[0]] if decided else []
            found.setdefault(name, {})[spelled] = first
    return found


def collect(models: list[str], shapes: list[str], every: int) -> None:
    """Add the layers of models, and of each `every`-th case of the suite, if it is not 0, to the file."""
    layers = read()
    for name, model in _imported(models, shapes, every):
        before = len(layers)
        for target in ("amx", "avx2", "dotprod"):
            try:
                _add(layers, name, model, target)
            except Exception as error:  # of the compiler's own kinds, too
                print(f"{name} for {target}: {type(error).__name__}: {str(error).splitlines()[-1][:160]}")
        if len(layers) > before or not name.startswith("suite"):
            print(f"{name}: {len(layers) - before} new layers, {len(layers)} in all", flush=True)
            write(layers)


def _add(layers: dict[str, Layer], name: str, model: Any, target: str) -> None:
    from kintune.compiler.graph.lower import lower
    from kintune.compiler.space.replay import save_workload

    for workload in lower(model.module, target_named(target)).workloads:
        known = layers.get(workload.digest)
        if known is not None:
            if name not in known.networks and len(known.networks) < 10:
                known.networks.append(name)
            continue
        offers = offers_of(workload.module)
        if offers:
            saved = save_workload(workload.module)
            layers[workload.digest] = Layer(workload.digest, workload.name, saved, workload.flops, [name], offers)


def _imported(models: list[str], shapes: list[str], every: int) -> Iterator[tuple[str, Any]]:
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    known = import_module("compile_times").known_shapes()
    for spelled in models:
        name = spelled if spelled.startswith("zoo:") else Path(spelled).stem
        try:
            yield name, load(parse_ref(spelled, shapes or known.get(name, [])))
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:160]}", flush=True)
    if every:
        sys.path.append(str(Path(__file__).resolve().parent.parent))
        suite_module = import_module("tests.support.onnx_suite")
        with suite_module.written_suite() as suite:
            for name in list(suite.operators)[::every]:
                case, _ = pickle.loads((Path(suite.folder) / name).read_bytes())
                path = Path(suite.folder) / "case.onnx"
                try:
                    path.write_bytes(case.model)
                    yield f"suite:{name}", load(parse_ref(str(path)))
                except Exception:  # what the importer refuses has no layers
                    continue


def changed_offers(*, writes: bool = False) -> list[str]:
    """A line on each layer whose programs are no more those that the file has, or that it had, if it `writes` them."""
    from kintune.compiler.space.replay import load_workload

    found, known = [], read()
    for layer in known.values():
        now = offers_of(load_workload(layer.module))
        for name in TARGETS:
            lost = set(layer.offers.get(name, ())) - set(now.get(name, ()))
            if lost and len(now.get(name, ())) < len(layer.offers[name]):
                found.append(f"{layer.digest[:12]} {layer.title} on {name}: no {', '.join(sorted(lost))}")
        layer.offers = now
    if writes:
        write(known)
    return found


def main() -> None:
    """Collect, compare or list."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("collect", "offers", "list"))
    parser.add_argument("models", nargs="*")
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--write", action="store_true", help="keep what is offered now")
    parser.add_argument("--suite", type=int, default=0, metavar="N", help="each N-th case of ONNX's suite")
    options = parser.parse_args()
    if options.what == "collect":
        collect(options.models, options.shape, options.suite)
    elif options.what == "offers":
        lines = changed_offers(writes=options.write)
        print("\n".join(lines) or "all layers have what they had")
        sys.exit(bool(lines))
    else:
        for layer in read().values():
            offered = sorted({each.partition(".")[0] for by_name in layer.offers.values() for each in by_name})
            print(f"{layer.digest[:12]} {layer.flops:10.3g} {','.join(offered)}  {layer.title}  {layer.networks[:3]}")


if __name__ == "__main__":
    main()
