"""Where measurements are exported to or imported from."""

from __future__ import annotations

import click
import msgspec

__all__ = ["ExchangePlace", "choose_place", "metaschedule_option"]

metaschedule_option = click.option(
    "--metaschedule", metavar="DIR", help="A database of stock MetaSchedule, in place of FILE."
)


class ExchangePlace(msgspec.Struct, frozen=True):
    """A file of ours, or the directory of a stock MetaSchedule database."""

    path: str
    is_stock: bool


def choose_place(file: str | None, metaschedule: str | None) -> ExchangePlace:
    """The one place that was given; raises click.UsageError when there is none, or two."""
    if (file is None) == (metaschedule is None):
        raise click.UsageError("name one place: FILE, or --metaschedule DIR", click.get_current_context(silent=True))
    return ExchangePlace(file, False) if file is not None else ExchangePlace(str(metaschedule), True)
