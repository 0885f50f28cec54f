#!/usr/bin/env python3
"""The reference, generated from the code: the command line, Python, REST and C, each a page of Markdown.

    python tools/reference_pages.py DIR

writes `command_line.md`, `python.md`, `rest.md` and `c.md` to the folder.  `with_tables` makes the tables of options in
docs/.  The help of commands comes from click, what
Python offers from signatures and docstrings, the API from the web application's own description, and C from the header.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import click
import msgspec

from kintune.cli.sections import ConfigOption, SectionedCommand

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "runtime" / "src" / "kintune_runtime" / "include" / "kintune.h"
_WIDTH = 100
_PACKAGES = ("kintune", "kintune_runtime")
_SECTION = re.compile(r"^(Args|Raises|Returns|Yields):$")
_ENTRY = re.compile(r"^    (\S.*?): (.*)$")


def command_line() -> str:
    """The help of every command."""
    from kintune.cli.root import root

    head = (
        "# Commands and options\n\n"
        "The help of every command, as `kintune COMMAND --help` prints it. [Command line](../cli.md) explains them.\n"
    )
    return "\n".join([head, *_commands(root, "kintune", None)])


def _commands(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    context = command.context_class(
        command, parent=parent, info_name=name, terminal_width=_WIDTH, **command.context_settings
    )
    level = "##" if parent is None or parent.parent is None else "###"
    yield f"{level} {context.command_path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"
    if isinstance(command, click.Group):
        for below in sorted(command.list_commands(context)):
            if (found := command.get_command(context, below)) is not None:
                yield from _commands(found, below, context)


def python() -> str:
    """What `kintune` and `kintune_runtime` export."""
    pages = [
        "# Python in detail\n\n"
        "What `kintune` and `kintune_runtime` export. [Python](../python.md) shows how it is used.\n"
    ]
    for package in _PACKAGES:
        module = importlib.import_module(package)
        pages.append(f"## {package}\n\n{_docstring(module)}\n")
        for name in sorted(module.__all__, key=str.lower):
            if not name.startswith("_"):
                pages.append(_described(f"{package}.{name}", getattr(module, name)))
    return "\n".join(pages)


def _described(path: str, thing: Any) -> str:
    name = path.rpartition(".")[2]
    if inspect.isclass(thing):
        parts = [f"### {path}\n", _docstring(thing), ""]
        if issubclass(thing, BaseException):
            parts[1:1] = [f"An exception, a kind of `{thing.__mro__[1].__name__}`.\n"]
        else:
            if fields := _fields(thing):
                parts += [fields, ""]
            elif "__init__" in vars(thing):
                said = _docstring(thing.__init__) if thing.__init__.__doc__ else ""
                parts += [f"```python\n{name}{_signature(thing.__init__)}\n```\n", said, ""]
            for below, member in sorted(_members(thing).items()):
                parts += _member(name, below, member)
        return "\n".join(parts)
    if callable(thing):
        return f"### {path}\n\n```python\n{name}{_signature(thing)}\n```\n\n{_docstring(thing)}\n"
    return f"### {path}\n\n`{thing!r}`\n"


_TABLE = re.compile(r"(?<=<!-- options of )(\w+)( -->\n).*?(?=<!-- end of options -->)", re.S)
"""Where a page of docs/ has a table of options, which is made from their definitions."""


def with_tables(text: str, page: str) -> str:
    """A page of docs/ with its tables of options made anew: those of a command, or of `TuneConfig`."""
    return _TABLE.sub(lambda found: "\n".join([found[1] + found[2], *_table(found[1], page), "", ""]), text)


def _table(of: str, page: str) -> Iterator[str]:
    from kintune.cli.root import root
    from kintune.core.config import TuneConfig
    from kintune.core.constraints import fields_of

    if of == "TuneConfig":
        yield from ("| option | default | meaning |", "|---|---|---|")
        for field in fields_of(TuneConfig).values():
            default = field.shown.without if field.default is None and field.shown.without else f"`{field.default!r}`"
            yield f"| `{field.name}` | {default} | {field.help}{_see(field.shown.see, page)} |"
        return
    context = click.Context(root, info_name="kintune")
    command = root.get_command(context, of)
    assert isinstance(command, SectionedCommand)
    yield from ("| option | meaning |", "|---|---|")
    for _, options in command.listed(click.Context(command, parent=context)):
        for option in options:
            names, text = option.get_help_record(context) or ("", "")
            if names and names != "-h, --help":
                see = _see(option.shown.see, page) if isinstance(option, ConfigOption) else ""
                yield f"| `{_escaped(names).replace(', ', '`, `')}` | {_escaped(text)}{see} |"


def _escaped(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _see(where: str, page: str) -> str:
    """A link to the page that has more, as it is written on this page."""
    return f" ([more]({where.removeprefix(page)}))" if where else ""


def _members(kind: type) -> dict[str, Any]:
    """The public members of a class by name, with those that it inherits from classes of these packages."""
    ours = [each for each in kind.__mro__ if each.__module__.split(".")[0] in _PACKAGES]
    return {name: each for base in reversed(ours) for name, each in vars(base).items() if not name.startswith("_")}


def _member(owner: str, name: str, member: Any) -> list[str]:
    """A method or property of a class; nothing for what is neither, or says nothing."""
    wrapped = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
    if isinstance(member, property):
        shown = f"`{owner}.{name}`" + (f": `{_annotation(member.fget)}`" if _annotation(member.fget) else "")
        return [f"#### {owner}.{name}\n", f"{shown}\n", _docstring(member), ""]
    if inspect.isfunction(wrapped):
        return [f"#### {owner}.{name}\n", f"```python\n{name}{_signature(wrapped)}\n```\n", _docstring(wrapped), ""]
    return []


def _annotation(function: Any) -> str:
    return str(getattr(function, "__annotations__", {}).get("return", ""))


def _fields(kind: type) -> str:
    """The fields of a struct or of a named tuple as a table; "" for another class."""
    if issubclass(kind, msgspec.Struct):
        found = [(each.name, each.type, _default(each)) for each in msgspec.structs.fields(kind)]
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        hints, defaults = get_type_hints(kind), getattr(kind, "_field_defaults", {})
        names = getattr(kind, "_fields", ())
        found = [(name, hints[name], f"`{defaults[name]!r}`" if name in defaults else "") for name in names]
    else:
        return ""
    explained = any(_help(hint) for _, hint, _ in found)
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"] if explained else [_HEAD, "|---|---|---|"]
    for name, hint, default in found:
        cells = [f"`{name}`", _shown_type(hint), default, *([_help(hint)] if explained else [])]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


_HEAD = "| field | type | default |"


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return ""
    return f"`{field.default!r}`" if field.default is not msgspec.NODEFAULT else "made anew"


def _shown_type(hint: Any) -> str:
    """A type as code writes it, without what `Annotated` adds."""
    if get_origin(hint) is Annotated:
        return _shown_type(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return " | ".join(map(_shown_type, get_args(hint)))
    if hint is NoneType:
        return "None"
    shown = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", shown)


def _help(hint: Any) -> str:
    """What `Meta` says of a field, in one line; "" where it says nothing."""
    texts = [each.description for each in getattr(hint, "__metadata__", ()) if isinstance(each, msgspec.Meta)]
    return next(filter(None, [*texts, *map(_help, get_args(hint))]), "")


class _Bare:
    """An annotation that is shown without quotes."""

    def __init__(self, text: object) -> None:
        self._text = text

    def __repr__(self) -> str:
        return str(self._text)


def _signature(function: Any) -> str:
    """The parameters and the result of a function, on a line each where they are long."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return "(...)"
    parameters = [
        each.replace(annotation=_Bare(each.annotation)) if isinstance(each.annotation, str) else each
        for each in found.parameters.values()
        if each.name not in ("self", "cls")
    ]
    result = _Bare(found.return_annotation) if isinstance(found.return_annotation, str) else found.return_annotation
    text = str(found.replace(parameters=parameters, return_annotation=result))
    if len(text) < _WIDTH:
        return text
    lines: list[str] = []
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not any(line.startswith("*") for line in lines):
            lines.append("*")
        lines.append(str(each))
    return "(\n    " + ",\n    ".join(lines) + "\n)" + text[text.rindex(")") + 1 :]


def _docstring(thing: Any) -> str:
    """A docstring as Markdown: its sections are lists, its indented examples stay code."""
    text = inspect.getdoc(thing) or ""
    lines: list[str] = []
    section = False
    for line in text.splitlines():
        if (found := _SECTION.match(line)) is not None:
            section = True
            lines += ["", f"**{found[1]}**", ""]
        elif section and (entry := _ENTRY.match(line)) is not None:
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        elif section and line.startswith("    "):
            lines.append(f"  {line.strip()}")
        else:
            section = section and not line.strip()
            lines.append(line)
    return "\n".join(lines).strip()


def rest() -> str:
    """The service's API, from the web application's description of itself."""
    from kintune.service.settings import ServiceSettings
    from kintune.service.web.app import make_app
    from kintune.service.web.application_state import ApplicationState

    with (
        tempfile.TemporaryDirectory(prefix="kintune-reference-") as folder,
        ApplicationState(ServiceSettings(data=folder)) as application,
    ):
        document = make_app(application).openapi()
    parts = [
        "# REST API\n\nWhat a service answers to; `/api/docs` of a service shows the same and tries it. Requests carry "
        "`Authorization: Bearer TOKEN` once somebody has a token.\n"
    ]
    tags: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tags.setdefault((operation.get("tags") or ["other"])[0], []).append(_operation(method, path, operation))
    for tag, operations in tags.items():
        parts += [f"## {tag.capitalize()}\n", *operations]
    parts.append("## Documents\n")
    for name, schema in sorted(document.get("components", {}).get("schemas", {}).items()):
        parts.append(_schema(name, schema))
    return "\n".join(parts)


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    lines = [f"### {method.upper()} {path}\n", operation.get("description") or operation.get("summary", ""), ""]
    if parameters := operation.get("parameters"):
        lines += ["| parameter | in | type | |", "|---|---|---|---|"]
        for each in parameters:
            about = each.get("description", "") or ("required" if each.get("required") else "")
            lines.append(f"| `{each['name']}` | {each['in']} | {_type(each['schema'])} | {about} |")
        lines.append("")
    body = operation.get("requestBody", {}).get("content", {})
    for kind, content in body.items():
        lines += [f"Body: `{kind}`, {_type(content.get('schema', {}))}.", ""]
    for code, answer in operation.get("responses", {}).items():
        content = answer.get("content", {})
        shown = ", ".join(f"`{kind}`: {_type(each.get('schema', {}))}" for kind, each in content.items())
        lines.append(f"- `{code}`: {answer.get('description', '')}{'; ' + shown if shown else ''}")
    return "\n".join(lines) + "\n"


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    lines = [f"### {name}\n", " ".join(str(schema.get("description", "")).split()), ""]
    if "enum" in schema:
        lines.append(", ".join(f"`{each}`" for each in schema["enum"]))
    elif schema.get("properties"):
        lines += ["| field | type | default |", "|---|---|---|"]
        for field, about in schema["properties"].items():
            default = f"`{json.dumps(about['default'])}`" if "default" in about else ""
            lines.append(f"| `{field}` | {_type(about)} | {default} |")
    return "\n".join(lines) + "\n"


def _type(schema: Mapping[str, Any]) -> str:
    """A type in words, with links to the documents that it names."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key, joint in (("anyOf", " or "), ("oneOf", " or "), ("allOf", " and ")):
        if key in schema:
            return joint.join(_type(each) for each in schema[key])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))


def c() -> str:
    """The header, declaration by declaration."""
    text = HEADER.read_text()
    head, _, body = text.partition("#ifndef KINTUNE_H")
    about = "\n".join(re.sub(r"^ \* ?", "", line) for line in head.strip().splitlines()[1:-1])
    parts = [
        f"# C\n\n`kintune.h`; `kintune.hpp` is a class for C++17 around it. [Deploy](../deploy.md) leads to both."
        f"\n\n{about}\n"
    ]
    for chunk in re.split(r"\n\n+", body.replace("\r", "")):
        lines = [line for line in chunk.splitlines() if not _GUARD.match(line)]
        declaration = "\n".join(lines).strip()
        if not declaration:
            continue
        comment, declaration = _split_comment(declaration)
        if names := _declared(declaration):
            parts.append(f"## {', '.join(names)}\n\n{comment}\n\n```c\n{declaration}\n```\n")
    return "\n".join(parts)


_GUARD = re.compile(r'#if|#endif|#else|#include|#define (KINTUNE_H|KT_API)|extern "C" \{|\}$')
_DECLARED = re.compile(
    r"\b(kt_\w+)\(|^\} (kt_\w+);|^typedef struct \w+ (kt_\w+);|\(\*(kt_\w+)\)|^#define (KT_\w+)", re.M
)


def _split_comment(text: str) -> tuple[str, str]:
    """The comment at the head of a declaration, without its stars, and the rest."""
    if not text.startswith("/*"):
        return "", text
    comment, _, rest_ = text.partition("*/")
    lines = (re.sub(r"^\s*(?:/\*|\*) ?", "", line) for line in comment.splitlines())
    return "\n".join(lines).strip(), rest_.strip()


def _declared(text: str) -> list[str]:
    """The names that a declaration declares, in order."""
    return list(dict.fromkeys(next(filter(None, groups)) for groups in _DECLARED.findall(text)))


PAGES = {"command_line": command_line, "python": python, "rest": rest, "c": c}
"""The pages by their names."""


def write(folder: Path) -> None:
    """Writes all pages to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / f"{name}.md").write_text(page())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: tools/reference_pages.py DIR")
    write(Path(sys.argv[1]))
