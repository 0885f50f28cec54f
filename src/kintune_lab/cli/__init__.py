"""The commands that this package adds to `kintune`."""

from __future__ import annotations

from kintune.cli.lazy import Entry

__all__ = ["COMMANDS"]

_LABORATORY = "The laboratory"

COMMANDS = {
    "bench": Entry("kintune_lab.cli.bench", "Run a matrix of experiments unattended.", section=_LABORATORY),
    "simulate": Entry("kintune_lab.cli.simulate", "Simulate schedules in virtual time.", section=_LABORATORY),
    "fuzz": Entry("kintune_lab.cli.fuzz", "Draw models, compile them, compare the results.", section=_LABORATORY),
    "families": Entry("kintune_lab.cli.families", "Show which subgraphs share a cost model.", section=_LABORATORY),
}
