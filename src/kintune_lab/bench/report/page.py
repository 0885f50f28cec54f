"""The report as one file: no script, nothing from elsewhere, readable by day and by night and on a small screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from kintune_lab.experiment.section import Grid, ReportSection

__all__ = ["page"]

_STYLE = """
:root { color-scheme: light dark;
  --ink: #1f2328; --paper: #ffffff; --quiet: #59636e; --grid: #c9d1d9; --shade: #f6f8fa }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --quiet: #9198a1; --grid: #3d444d; --shade: #161b22 }
}
body { margin: 0 auto; max-width: 60rem; padding: 1rem; color: var(--ink); background: var(--paper);
  font: 16px/1.5 system-ui, sans-serif }
h1 { font-size: 1.5rem; line-height: 1.2 } h2 { font-size: 1.2rem; margin-top: 2rem }
.quiet { color: var(--quiet) }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--grid) }
figure { margin: 1rem 0 } figure svg { width: 100%; min-width: 26rem; height: auto; color: var(--ink) }
figure svg text { font-family: system-ui, sans-serif }
pre { padding: .75rem; overflow-x: auto; background: var(--shade); font-size: .85rem }
summary { cursor: pointer }
""".strip()


def page(
    title: str,
    lead: Sequence[str],
    sections: Sequence[ReportSection],
    drawings: Mapping[str, str],
    folded: Mapping[str, str | Grid],
) -> str:
    """The page.  `drawings` has an inline image for each chart by its name; `folded` what is shown on demand."""
    parts = [f"<h1>{escape(title)}</h1>", *(f'<p class="quiet">{escape(line)}</p>' for line in lead)]
    for section in sections:
        parts.append(f"<h2>{escape(section.title)}</h2>")
        parts += [f"<p>{escape(text)}</p>" for text in section.text]
        parts += [_grid(grid) for grid in section.grids]
        parts += [
            f'<figure class="wide" role="img" aria-label="{escape(chart.title)}">{drawings[chart.name]}</figure>'
            for chart in section.charts
            if chart.name in drawings
        ]
    for name, content in folded.items():
        shown = _grid(content) if isinstance(content, Grid) else f"<pre>{escape(content)}</pre>"
        parts.append(f"<details><summary>{escape(name)}</summary>{shown}</details>")
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    )
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _grid(grid: Grid) -> str:
    header = "".join(f"<th>{escape(text)}</th>" for text in grid.header)
    rows = "\n".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in grid.rows)
    return f'<div class="wide"><table><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table></div>'
