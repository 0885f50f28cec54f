"""The commands that this package adds to `kintune`."""

from __future__ import annotations

from kintune.cli.lazy import Entry

__all__ = ["COMMANDS"]

COMMANDS = {
    "bench": Entry("kintune_lab.cli.bench", "Run a whole matrix of experiments unattended.", after="estimate"),
    "simulate": Entry("kintune_lab.cli.simulate", "Play schedules in virtual time.", after="bench"),
    "families": Entry("kintune_lab.cli.families", "Show which subgraphs of a model learn together.", after="simulate"),
}
