"""The help of every command, the keys of every JSON document, and the tables of options in docs/, as text.

    python -m tests.golden.public_face

writes `help.txt`, `documents.json`, `docs/report.schema.json` and the tables in docs/ anew.  Users' scripts rely on
what they hold: a change here changes the public face, and belongs into CHANGELOG.md.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

import kintune
import kintune_lab
from kintune.core.failure_report import report_schema

HERE = Path(__file__).parent

SCHEMA = HERE.parents[1] / "docs/report.schema.json"

_WIDTH = 80


def help_text() -> str:
    """The help of every command, in the order of their names."""
    from kintune.cli.root import root

    return "\n".join(_helps(root, "kintune", None))


def _helps(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    context = command.context_class(
        command, parent=parent, info_name=name, terminal_width=_WIDTH, **command.context_settings
    )
    yield f"$ {context.command_path} --help\n{command.get_help(context)}\n"
    if isinstance(command, click.Group):
        for below in sorted(command.list_commands(context)):
            found = command.get_command(context, below)
            assert found is not None
            yield from _helps(found, below, context)


def documents() -> dict[str, Any]:
    """The keys of every JSON document that has a `schema_version`, by its first four keys: classes may be renamed."""
    found: dict[str, Any] = {}
    for struct in _structs():
        if "schema_version" in struct.__struct_fields__:
            keys = _keys(struct, ())
            found[", ".join(list(keys)[:4])] = keys
    return dict(sorted(found.items()))


def _structs() -> Iterator[type[msgspec.Struct]]:
    for module in [
        *pkgutil.walk_packages(kintune.__path__, "kintune."),
        *pkgutil.walk_packages(kintune_lab.__path__, "kintune_lab."),
    ]:
        if module.name.startswith(("kintune.cli", "kintune.core", "kintune_lab.simulate", "kintune.tuning.estimation")):
            importlib.import_module(module.name)
    elsewhere = ("kintune.core.profile", "kintune.service.client")
    for place in ("kintune_lab.families.document", "kintune_lab.bench.summary", *elsewhere):
        importlib.import_module(place)
    seen, waiting = set(), [msgspec.Struct]
    while waiting:
        for struct in waiting.pop().__subclasses__():
            if struct not in seen and struct.__module__.startswith(("kintune.", "kintune_lab.")):
                seen.add(struct)
                yield struct
            waiting.append(struct)


def _keys(kind: Any, above: tuple[Any, ...]) -> Any:
    """Names of fields to what they hold; `above` are the structs that it lies in."""
    info = kind if isinstance(kind, msgspec.inspect.Type) else msgspec.inspect.type_info(kind)
    match info:
        case msgspec.inspect.Metadata():
            return _keys(info.type, above)
        case msgspec.inspect.StructType():
            if info.cls in above:
                return "itself"
            return {field.encode_name: _keys(field.type, (*above, info.cls)) for field in info.fields}
        case msgspec.inspect.UnionType():
            parts = [_keys(part, above) for part in info.types]
            return sorted(parts, key=json.dumps)
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType() | msgspec.inspect.SetType():
            return [_keys(info.item_type, above)]
        case msgspec.inspect.TupleType():
            return [_keys(part, above) for part in info.item_types]
        case msgspec.inspect.DictType():
            return {"*": _keys(info.value_type, above)}
        case msgspec.inspect.EnumType():
            return sorted(str(member.value) for member in info.cls)
        case msgspec.inspect.LiteralType():
            return sorted(map(str, info.values))
    return type(info).__name__.removesuffix("Type").lower()


def pages_with_options() -> dict[Path, str]:
    """The pages of docs/ with a table of options, each with its tables made anew."""
    sys.path.insert(0, str(SCHEMA.parents[1] / "tools"))
    try:
        tables = importlib.import_module("reference_pages")
    finally:
        sys.path.pop(0)
    pages = (page for page in SCHEMA.parent.glob("*.md") if "<!-- options of " in page.read_text())
    return {page: tables.with_tables(page.read_text(), page.name) for page in pages}


def main() -> None:
    """Write all files anew."""
    (HERE / "help.txt").write_text(help_text())
    (HERE / "documents.json").write_text(json.dumps(documents(), indent=1) + "\n")
    SCHEMA.write_text(json.dumps(report_schema(), indent=1) + "\n")
    for page, text in pages_with_options().items():
        page.write_text(text)


if __name__ == "__main__":
    main()
