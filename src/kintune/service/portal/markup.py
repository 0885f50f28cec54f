"""Markup of pages as text: every value is escaped, so that a name that came from outside stays a name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

__all__ = [
    "MarkupColumn",
    "action",
    "actions",
    "chip",
    "choice",
    "dialog",
    "link",
    "name",
    "notice",
    "table",
    "tag",
    "text",
]

_PARTS = re.compile(r"([_/-]+)(?=\w)")
_BROAD = 8  # columns
_VOID = frozenset({"input", "br", "hr", "img"})

Value = str | float | bool | None


def text(value: object) -> str:
    """A value as the content of an element, or as an attribute."""
    return escape(str(value), quote=True)


def tag(name: str, content: str | Iterable[str] = "", /, **attributes: Value) -> str:
    """An element around content that is markup already.

    Attributes are escaped; `class_` is `class`, `aria_label` is `aria-label`; None and False leave one out.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(key if value is True else f'{key}="{text(value)}"')
    inside = content if isinstance(content, str) else "".join(content)
    return f"<{' '.join(parts)}>" if name in _VOID else f"<{' '.join(parts)}>{inside}</{name}>"


def link(words: str, target: str, **attributes: Value) -> str:
    """A link of these words."""
    return tag("a", name(words), href=target, **attributes)


def name(words: str) -> str:
    """A name as the content of an element, which is broken between its parts where it is too long for a line."""
    return _PARTS.sub(r"\1<wbr>", text(words))


def chip(words: str, kind: str, title: str | None = None) -> str:
    """A short word in a coloured frame; `kind` is the end of its class, `title` what a mouse on it shows."""
    return tag("span", text(words), class_=f"chip chip-{kind}", title=title)


def notice(words: str, kind: str = "note") -> str:
    """A sentence that should be seen: `kind` is "note", "bad", "warn" or "good"."""
    return tag("p", text(words), class_=f"notice notice-{kind}", role="alert" if kind == "bad" else None)


class MarkupColumn(NamedTuple):
    """A column of a table: its heading, which is markup, and the class of its cells: "num" of numbers, "name" ...

    `label` stands before each cell where there is no room for columns; None: the heading does.  `sort` is "ascending"
    or "descending" where the rows are sorted by it.
    """

    heading: str
    kind: str = ""
    label: str | None = None
    sort: str | None = None


def table(caption: str, columns: Sequence[MarkupColumn], rows: Iterable[Sequence[str]], *, whole: bool = False) -> str:
    """A table of rows of cells, which are markup; columns without a word in them are left out, unless it is `whole`.

    Where there is little room the cells of a row follow one another, with labels.  A table that is wider than its place
    can be scrolled, also by keyboard.
    """
    lines = list(rows)
    shown = [at for at in range(len(columns)) if whole or any(line[at] for line in lines)]
    heads = (
        tag("th", columns[at].heading, scope="col", class_=columns[at].kind or None, aria_sort=columns[at].sort)
        for at in shown
    )
    body = (tag("tr", (_cell(columns[at], line[at]) for at in shown)) for line in lines)
    parts = [tag("caption", text(caption), class_="hidden"), tag("thead", tag("tr", heads)), tag("tbody", body)]
    kind = "wide broad" if len(shown) >= _BROAD else "wide"
    return tag("div", tag("table", parts), class_=kind, tabindex="0", role="region", aria_label=caption)


def _cell(column: MarkupColumn, content: str) -> str:
    if column.kind == "head":
        return tag("th", content, scope="row")
    label = column.heading if column.label is None else column.label
    return tag("td", content, class_=column.kind or None, data_label=label if label and content else None)


def choice(name: str, value: str, words: str, state: str = "", *, checked: bool = False) -> str:
    """The box of a row that chooses it; the script of the pages keeps what is chosen when the row is drawn again.

    `words` name the row, and `state` is what `action` asks for.
    """
    return tag(
        "input", type="checkbox", name=name, value=value, checked=checked, data_keep="", data_state=state,
        data_name=words, aria_label=f"Choose {words}", id=f"choose-{value}",
    )  # fmt: skip


def action(words: str, states: str = "", needs: str = "1-99", **attributes: Value) -> str:
    """A button for the chosen rows, enabled where so many of them (`needs`) are in one of these states; "": in any."""
    usual: dict[str, Value] = {"type": "submit", "class_": "button", "data_needs": needs, "data_states": states}
    return tag("button", text(words), **{**usual, **attributes}, disabled=True)


def actions(offered: Iterable[str], words: str) -> str:
    """The line of actions above rows, with a box that chooses all of them; it stays in sight."""
    every = tag("input", type="checkbox", data_every="", aria_label="Choose all that are shown")
    chosen = tag("span", "none chosen", data_chosen="", class_="faint", role="status")
    parts = [tag("label", [every, tag("span", "All"), chosen], class_="every"), *offered]
    return tag("div", parts, class_="line actions", role="group", aria_label=words)


def dialog(key: str, words: str, act: str, keep: str, **button: Value) -> str:
    """A question on the chosen rows of a form, which a button with `data_asks` of its `key` opens.

    The script of the pages lists their names.  `act` and `keep` are its buttons; `button` has attributes of the former.
    """
    buttons = [
        tag("button", text(act), type="submit", class_="button danger", id=f"{key}-yes", **button),
        tag("button", text(keep), type="button", class_="button", data_closes=""),
    ]
    parts = [
        tag("p", text(words), id=f"{key}-words"), tag("ul", "", data_names=""), tag("div", buttons, class_="line"),
    ]  # fmt: skip
    return tag("dialog", tag("div", parts, class_="stack"), id=key, aria_labelledby=f"{key}-words")
