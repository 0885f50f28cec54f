"""Help in sections: options under headings, common ones first, within the width of the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import click

from kintune.core.constraints import Shown

__all__ = ["TUNE_SECTIONS", "ConfigOption", "HelpContext", "SectionedCommand", "Sections"]

Sections: TypeAlias = Sequence[tuple[str, Sequence[str]]]
"""Headings, each with the names of the parameters below it."""

_ROOMY = 60  # columns, below which names and texts do not stand side by side

_REST = "Other options"

TUNE_SECTIONS: Sections = (
    ("The model", ("shapes", "constants")),
    ("When to stop", ()),
    ("The result", ("output",)),
    ("Output and logs", ("quiet", "verbose", "wait", "json_target")),
    ("Where it is measured", ("service", "token")),
    ("Records", ()),
    ("Several models", ("policy", "priorities", "bundling", "no_pipeline", "schedule")),
    ("The search, for experts", ()),
)
"""The headings for `tune` and related commands, with those of their options that belong to no configuration."""


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


class HelpContext(click.Context):
    """The context of all commands."""

    formatter_class = _Formatter


class ConfigOption(click.Option):
    """The option of a field of a configuration, listed in its section."""

    def __init__(self, *arguments: Any, shown: Shown, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.shown = shown


class SectionedCommand(click.Command):
    """A command whose options are listed under headings; one that no section names comes last."""

    def __init__(self, *arguments: Any, sections: Sections = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._sections = sections

    def listed(self, ctx: click.Context) -> list[tuple[str, list[click.Option]]]:
        """The options under their headings: first the command's own, then those of the sections with this heading."""
        rest = {param.name: param for param in self.get_params(ctx) if isinstance(param, click.Option)}
        configured = [param for param in rest.values() if isinstance(param, ConfigOption)]
        configured.sort(key=lambda param: param.shown.section.number)
        listed = []
        for title, own in self._sections:
            names = [*own, *(param.name for param in configured if param.shown.section.heading == title)]
            listed.append((title, [rest.pop(name) for name in names if name in rest]))
        return [*listed, (_REST, list(rest.values()))]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        listed = [
            (title, [record for param in params if (record := param.get_help_record(ctx)) is not None])
            for title, params in self.listed(ctx)
        ]
        width = max((len(name) for _, rows in listed for name, _ in rows if len(name) <= _FIRST), default=0)
        for title, rows in listed:
            if rows:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), text) for name, text in rows], col_max=max(width, 1))


_FIRST = 26  # columns of names; a longer one stands above its text
