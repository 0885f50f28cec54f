"""Markup of pages as text: every value is escaped, so that a name that came from outside stays a name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

__all__ = ["Heading", "chip", "link", "notice", "table", "tag", "text"]

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
    return tag("a", text(words), href=target, **attributes)


def chip(words: str, kind: str) -> str:
    """A short word in a coloured frame; `kind` is the end of its class."""
    return tag("span", text(words), class_=f"chip chip-{kind}")


def notice(words: str, kind: str = "note") -> str:
    """A sentence that should be seen: `kind` is "note", "bad" or "good"."""
    return tag("p", text(words), class_=f"notice notice-{kind}", role="alert" if kind == "bad" else None)


class Heading(NamedTuple):
    """A column's heading: its markup, whether it holds numbers, and how it is sorted ("ascending" ...), if it is."""

    content: str
    number: bool = False
    sort: str | None = None


def table(caption: str, headings: Sequence[Heading], rows: Iterable[str], **attributes: Value) -> str:
    """A table of rows that are markup; where the screen is narrow it can be scrolled, also by keyboard."""
    heads = (
        tag("th", head.content, scope="col", class_="num" if head.number else None, aria_sort=head.sort)
        for head in headings
    )
    body = [tag("caption", text(caption), class_="hidden"), tag("thead", tag("tr", heads)), tag("tbody", rows)]
    scrolled = tag("table", body, **attributes)
    return tag("div", scrolled, class_="wide", tabindex="0", role="region", aria_label=caption)
