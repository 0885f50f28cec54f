"""How the progress of runs is shown: as a picture, as a line for each step, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TypeAlias

from kintune.core.report import ProgressReport
from kintune.errors import InputError

__all__ = ["Progress", "showing"]

Progress: TypeAlias = bool | Callable[[int, ProgressReport], None]
"""What `kintune.api.tune_all` takes as `progress`."""


@contextmanager
def showing(names: Sequence[str], *, quiet: bool, verbose: bool) -> Iterator[Progress]:
    """Show the runs of models of these names on standard error, as the options say.

    Raises:
        InputError: both options are given.
    """
    if quiet and verbose:
        raise InputError("--quiet and --verbose exclude each other; leave one of them out")
    if not verbose:
        yield not quiet
        return
    from kintune.terminal.display import open_display, open_fleet_display

    if len(names) > 1:
        with closing(open_fleet_display(f"{len(names)} models", names, verbose=True)) as fleet:
            yield fleet.show
    else:
        with closing(open_display(names[0], verbose=True)) as display:
            yield lambda _, report: display.show(report)
