"""Help in sections: options under headings, common ones first, within the width of the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import click

__all__ = ["TUNE_SECTIONS", "Context", "SectionedCommand", "Sections"]

Sections: TypeAlias = Sequence[tuple[str, Sequence[str]]]
"""Headings, each with the names of the parameters below it."""

_ROOMY = 60  # columns, below which names and texts do not stand side by side

_REST = "Other options"

TUNE_SECTIONS: Sections = (
    ("The model", ("shapes", "constants", "inputs")),
    ("When to stop", ("trials", "minutes", "until")),
    ("The result", ("output", "precision", "weights", "max_error", "metric", "max_drop", "calibrate", "rtol", "atol",
                    "keep_denormals", "onnxruntime", "other_shapes", "share", "strict", "isolate")),
    ("Output and logs", ("quiet", "verbose", "wait", "json_target", "log", "webhook")),
    ("Where it is measured", ("service", "token", "target", "device", "threads")),
    ("Records", ("records", "fresh", "kin")),
    ("Several models", ("policy", "priorities", "priority", "bundling", "no_pipeline", "schedule")),
    ("The search, for experts", ("families", "foresee", "carry", "round_size", "seed")),
)  # fmt: skip
"""The options of `tune`; those that another command shares stand there under the same headings."""


class _Formatter(click.HelpFormatter):
    """Puts names above their texts where the terminal is narrow."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write names with their texts."""
        listed = list(rows)
        if self.width >= _ROOMY:
            super().write_dl(listed, col_max, col_spacing)
            return
        for name, text in listed:
            for each, indent in ((name.strip(), self.current_indent), (text, self.current_indent + 4)):
                if each:
                    self.write(click.wrap_text(each, self.width, " " * indent, " " * (indent + 2)))
                    self.write("\n")


class Context(click.Context):
    """The context of all commands."""

    formatter_class = _Formatter


class SectionedCommand(click.Command):
    """A command whose options are listed under headings; one that no section names comes last."""

    def __init__(self, *arguments: Any, sections: Sections = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        records = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None and param.name is not None:
                records[param.name] = record
        listed = [(title, [records.pop(name) for name in names if name in records]) for title, names in self._sections]
        listed.append((_REST, list(records.values())))
        width = max((len(name) for _, rows in listed for name, _ in rows if len(name) <= _FIRST), default=0)
        for title, rows in listed:
            if rows:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), text) for name, text in rows], col_max=max(width, 1))


_FIRST = 26  # columns of names; a longer one stands above its text
