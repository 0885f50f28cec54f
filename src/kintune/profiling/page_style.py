"""The frame and style of HTML pages: one file without scripts or outside files, for light and for dark screens."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

__all__ = ["html_document"]

_STYLE = """
:root {
  color-scheme: light dark;
  --ground: #ffffff; --text: #1c1c1c; --faint: #595959; --line: #e0e0e0; --track: #eeeeee; --note: #fff6df;
  --good: #1b7a33; --bad: #b3261e; --accent: #2f6fb3; --second: #a85f00; --third: #8a3a80; --fourth: #2f7a59;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #16181b; --text: #e8e8e8; --faint: #a9adb3; --line: #33373c; --track: #2a2d31; --note: #3a3220;
    --good: #6cc98a; --bad: #f28b82; --accent: #7db3ec; --second: #e0a458; --third: #d08ac6; --fourth: #7cc7a2;
  }
}
body { font: 14px/1.45 system-ui, sans-serif; margin: 24px auto; max-width: 1200px; padding: 0 16px;
  color: var(--text); background: var(--ground); }
h1 { font-size: 22px; margin: 0 0 4px; overflow-wrap: anywhere; } h2 { font-size: 16px; margin: 28px 0 8px; }
p { margin: 4px 0; overflow-wrap: anywhere; }
.facts { color: var(--faint); } code { font-size: 13px; }
.bar { display: flex; height: 26px; border-radius: 4px; overflow: hidden;
  margin: 12px 0 6px; background: var(--track); }
.bar span { display: block; min-width: 1px; border-right: 1px solid #fff8; }
.key span { display: inline-block; margin-right: 16px; }
.key i { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 5px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: 4px 8px; border-bottom: 1px solid var(--line); vertical-align: top; }
th { position: sticky; top: 0; background: var(--ground); font-weight: 600; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; min-width: 130px; }
td { font-variant-numeric: tabular-nums; white-space: nowrap; } td:first-child { white-space: normal; }
td.limit, th.limit, td.text, th.text { text-align: left; white-space: normal; }
details > summary { cursor: pointer; } details div { color: var(--faint); font-size: 12px; padding: 3px 0 3px 16px; }
.share { display: inline-block; height: 8px; border-radius: 2px; vertical-align: middle; margin-left: 6px; }
.faster { color: var(--good); } .slower { color: var(--bad); }
.note { background: var(--note); padding: 6px 10px; border-radius: 4px; margin: 8px 0; }
svg { width: 100%; min-width: 640px; height: auto; } svg text { fill: var(--text); font: 12px system-ui, sans-serif; }
"""


def html_document(title: str, parts: Iterable[str], style: str = "") -> bytes:
    """A page of these parts of its body in UTF-8; `style` is added to the style of all pages."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head><body>",
            *parts,
            "</body></html>",
        ]
    ).encode()
