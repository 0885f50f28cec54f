"""Options that several commands share."""

from __future__ import annotations

import click

__all__ = ["constant_option", "records_option", "shape_option"]

shape_option = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="INPUT=1x3x224x224",
    help="Fix the shape of an input whose dimensions are dynamic; once for each.",
)

constant_option = click.option(
    "--constant",
    "constants",
    multiple=True,
    metavar="INPUT=VALUE",
    help="Fix the value of an input for good: sizes=1,3,8,8, flag=true or table=FILE.npy; once for each.",
)

records_option = click.option(
    "--records", metavar="FILE", help="The records file.  [default: one in your data directory]"
)
