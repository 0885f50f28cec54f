"""Measures the machine's peak: `python -m kintune.profiling.peak_process TARGET THREADS` prints a `Peak` as JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from kintune.hardware.cores import choose_cores
from kintune.hardware.cpu import inspect_machine
from kintune.hardware.software import forbid_torch

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints the peak of a canonical target (JSON) with so many threads."""
    target, threads = sys.argv[1:] if arguments is None else arguments
    forbid_torch()  # TVM would import it, for seconds

    from kintune.measure.hardware import host_hardware

    peak = host_hardware(target, choose_cores(int(threads)), inspect_machine()).peak()
    print(msgspec.json.encode(peak).decode())


if __name__ == "__main__":
    main()
