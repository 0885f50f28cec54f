"""Counts the memory traffic of a network's kernels, and the share of kernels that only move data.

    python benchmarks/traffic.py MODEL [--shape NAME=DIMxDIM...] [--conservative]

Nothing is run: for each kernel its calls, bytes (operands read and written once) and share.  The last line is the share
of the kernels without a reduction, which compute element by element or copy.  A reshape alone is no kernel.
"""

from __future__ import annotations

import argparse
import json

import tvm

from kintune.compiler.graph.lower import Lowered, lower
from kintune.compiler.graph.pieces import JOINS, SLICES, STRIDED_JOINS, STRIDED_SLICES, pieces_of
from kintune.compiler.graph.workload import StandaloneWorkload
from kintune.models.importer import load
from kintune.models.ref import parse_ref
from kintune.runtime.target import resolve_target


def share_without_reduction(lowered: Lowered) -> float:
    """The part of the network's bytes that kernels without a reduction move, from 0 to 1."""
    kernels = _kernels(lowered)
    total = sum(w.occurrences * w.bytes for w in kernels)
    return sum(w.occurrences * w.bytes for w in kernels if not w.reduces) / total if total else 0.0


def _kernels(lowered: Lowered) -> list[StandaloneWorkload]:
    """The functions that run as kernels: all but reshapes and copies of pieces, which no plan calls.

    Concatenations of channels are left out too, although a plan copies parts that cannot be computed in their places.
    """
    planned = {digest for name, digest in lowered.functions.items() if _is_planned_away(lowered.module[name])}
    return [w for w in lowered.workloads if w.signature != "reshape" and w.digest not in planned]


def _is_planned_away(function: tvm.tirx.PrimFunc) -> bool:
    return any(pieces_of(function, attribute) for attribute in (SLICES, JOINS, STRIDED_SLICES, STRIDED_JOINS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--conservative", action="store_true", help="lower without choosing layouts")
    options = parser.parse_args()
    target = tvm.target.Target(json.loads(resolve_target("native", 1)))
    lowered = lower(load(parse_ref(options.model, options.shape)).module, target, conservative=options.conservative)
    total = sum(w.occurrences * w.bytes for w in _kernels(lowered))
    print(f"{'MB':>9} {'share':>6} {'calls':>5}  reduces  kernel")
    for w in sorted(_kernels(lowered), key=lambda w: -w.occurrences * w.bytes):
        moved = w.occurrences * w.bytes
        shape = "x".join(str(int(extent)) for extent in w.module["main"].params[-1].shape)
        mark = "yes" if w.reduces else "-"
        print(f"{moved / 1e6:9.2f} {moved / total:6.1%} {w.occurrences:5}  {mark:7}  {w.signature} -> {shape}")
    print(f"{total / 1e6:.1f} MB, without a reduction {share_without_reduction(lowered):.1%}")


if __name__ == "__main__":
    main()
