"""The commands that this package adds to `kintune`."""

from __future__ import annotations

from kintune.cli.lazy import Entry

__all__ = ["COMMANDS"]

_LABORATORY = "The laboratory"

COMMANDS = {
    "bench": Entry("kintune_lab.cli.bench", "Run a whole matrix of experiments unattended.", section=_LABORATORY),
    "simulate": Entry("kintune_lab.cli.simulate", "Play schedules in virtual time.", section=_LABORATORY),
    "families": Entry(
        "kintune_lab.cli.families", "Show which subgraphs of a model learn together.", section=_LABORATORY
    ),
}
