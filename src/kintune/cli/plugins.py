"""Commands that other packages add to `kintune`.

A package declares an entry point in the group `kintune.commands`; its value names a table of commands, a mapping from
names to `Entry`.  The files are read here and not by `importlib.metadata`, whose import alone costs half of what
`kintune --help` may take.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

from kintune.cli.lazy import Entry

__all__ = ["GROUP", "with_plugins"]

GROUP = "kintune.commands"


def with_plugins(commands: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return `commands` and those of all installed packages, each behind the command that its `after` names.

    A package that cannot be imported is left out, with a line on standard error.  No command of `commands` is replaced.
    """
    table = dict(commands)
    for value in _declared(sys.path):
        module, _, attribute = value.partition(":")
        try:
            added: Mapping[str, Entry] = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            print(f"kintune: commands of {value} are left out: {error}", file=sys.stderr)
            continue
        for name, entry in added.items():
            if name not in table:
                table = _inserted(table, name, entry)
    return table


def _declared(search_path: list[str]) -> Iterator[str]:
    """The values of the entry points in GROUP, each once, of the distributions along `search_path`."""
    seen = set()
    for folder in search_path:
        for file in sorted(Path(folder).glob("*.dist-info/entry_points.txt")):
            content = file.read_bytes()
            if GROUP.encode() not in content:
                continue
            section = ""
            for line in content.decode("utf-8", "replace").splitlines():
                if line.startswith("["):
                    section = line.strip("[] ")
                elif section == GROUP and "=" in line:
                    value = line.partition("=")[2].strip()
                    if value not in seen:
                        seen.add(value)
                        yield value


def _inserted(table: Mapping[str, Entry], name: str, entry: Entry) -> dict[str, Entry]:
    """`table` with `name` behind the command `entry.after`, or at the end."""
    if entry.after not in table:
        return {**table, name: entry}
    names = list(table)
    names.insert(names.index(entry.after) + 1, name)
    return {each: table.get(each, entry) for each in names}
