"""How pages look: colours for a light and a dark screen, and the style of every part.  Without fonts or pictures."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DARK", "LIGHT", "LIMITS", "SERIES", "STAGES", "style_sheet"]

LIGHT: Mapping[str, str] = {
    "ground": "#f5f6f8", "surface": "#ffffff", "text": "#171b21", "faint": "#525c69", "line": "#d9dee5",
    "track": "#e9edf2", "accent": "#0b5cad", "on-accent": "#ffffff", "accent-soft": "#e3eefa", "good": "#136c36",
    "good-soft": "#e2f3e7", "bad": "#b3221a", "bad-soft": "#fce9e7", "warn": "#7d4b00", "warn-soft": "#fdf0d9",
    "header": "#14263b", "on-header": "#ffffff",
}  # fmt: skip
"""Colours on a light screen."""

DARK: Mapping[str, str] = {
    "ground": "#0f1215", "surface": "#171b20", "text": "#e7eaee", "faint": "#a5afbb", "line": "#303842",
    "track": "#252c34", "accent": "#77b6f7", "on-accent": "#06131f", "accent-soft": "#15304a", "good": "#78cf92",
    "good-soft": "#14301f", "bad": "#ff9d94", "bad-soft": "#3d1a18", "warn": "#f0bf6b", "warn-soft": "#37280d",
    "header": "#101d2c", "on-header": "#ffffff",
}  # fmt: skip
"""Colours on a dark screen."""

LIMITS: Mapping[str, tuple[str, str]] = {
    "arithmetic": ("#1f5fa8", "#77b6f7"),
    "memory": ("#b35f00", "#ffb066"),
    "copies": ("#8e3a86", "#d79be6"),
    "launch": ("#5f6062", "#b5b5b5"),
    "unknown": ("#3c6e8f", "#8fb8cf"),
    "onnxruntime": ("#1f7a55", "#78cf92"),
    "gap": ("#8b9299", "#6b7480"),
}
"""Colours of what bounds a kernel, of nodes in onnxruntime and of what lies between, for a light and a dark screen."""

SERIES: tuple[tuple[str, str], ...] = (
    ("#0b5cad", "#77b6f7"), ("#b34700", "#ffab66"), ("#136c36", "#78cf92"), ("#7b1fa2", "#d79be6"),
    ("#8a6500", "#e6c34a"),
)  # fmt: skip
"""Colours of curves, for a light and a dark screen."""

STAGES: Mapping[str, tuple[str, str]] = {
    "prepare": ("#71828f", "#90a4ae"),
    "draft": ("#6d4c41", "#bf9a8a"),
    "check": ("#008a9e", "#4dd0e1"),
    "baseline": ("#d81b60", "#ff6f9f"),
    "peak": ("#263238", "#eceff1"),
    "select": ("#1565c0", "#64b5f6"),
    "build": ("#d35400", "#ff9d45"),
    "profile": ("#2e7d32", "#81c784"),
    "update": ("#7b1fa2", "#ce93d8"),
    "confirm": ("#6f7800", "#d4d94f"),
    "precision": ("#6a5acd", "#a79bff"),
    "error": ("#c62828", "#ef6c64"),
    "package": ("#1a237e", "#8c9eff"),
    "prove": ("#9c7400", "#ffd54f"),
    "explain": ("#00796b", "#4db6ac"),
    "other": ("#5f6062", "#b5b5b5"),
}
"""Colours of kinds of stages, for a light and a dark screen; no two are the same."""


def _variables(colours: Mapping[str, str], screen: int) -> str:
    pairs = dict(colours)
    pairs.update({f"series-{number}": both[screen] for number, both in enumerate(SERIES)})
    pairs.update({f"limit-{name}": both[screen] for name, both in LIMITS.items()})
    pairs.update({f"stage-{name}": both[screen] for name, both in STAGES.items()})
    return "".join(f"--{name}:{value};" for name, value in pairs.items())


_PARTS = """
body { font: 15px/1.5 system-ui, sans-serif; background: var(--ground); color: var(--text); }
p, li, dd, h1, .h1, h2, code, label { overflow-wrap: anywhere; }
.q-layout, .q-page-container { background: var(--ground); }
.nicegui-content { padding: 0; align-items: stretch; }
.page { width: 100%; max-width: 1180px; margin: 0 auto; padding: 20px 16px 48px; display: flex; flex-direction: column;
  gap: 16px; }
.page > *, .stack > * { max-width: 100%; } .within, .within > div { display: inline; }
.stack { display: flex; flex-direction: column; gap: 12px; width: 100%; min-width: 0; align-items: stretch; }
.stack.tight { gap: 8px; }
h1, .h1 { font-size: 1.6rem; line-height: 1.25; font-weight: 650; margin: 0; }
h2 { font-size: 1.1rem; line-height: 1.3; font-weight: 650; margin: 0 0 8px; }
h3 { font-size: 1rem; line-height: 1.3; font-weight: 600; margin: 16px 0 4px; }
p { margin: 0; } ul { margin: 0; padding-left: 20px; list-style: disc; }
a { color: var(--accent); text-decoration: underline; text-underline-offset: 2px; }
a:hover { text-decoration-thickness: 2px; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; border-radius: 3px; }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.faint { color: var(--faint); } .small { font-size: .87rem; } .good { color: var(--good); } .bad { color: var(--bad); }
.warn { color: var(--warn); } .num { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code, pre, .mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .84rem; }
.early:has(~ #app:not(:empty)) { display: none; }
.early .q-header { position: static; } .early .page { padding-bottom: 0; }
.skip { position: absolute; left: -999px; } .skip:focus { left: 8px; top: 8px; z-index: 10; padding: 8px 12px;
  background: var(--surface); color: var(--accent); }
.q-header { background: var(--header); color: var(--on-header); padding: 0; display: block; }
.bar { max-width: 1180px; margin: 0 auto; padding: 8px 16px; display: flex; flex-wrap: wrap; gap: 4px 18px;
  align-items: center; }
.bar nav { display: flex; flex-wrap: wrap; gap: 2px 4px; }
.bar a { color: var(--on-header); text-decoration: none; padding: 4px 8px; border-radius: 6px; }
.bar a:hover, .bar button:hover { background: #ffffff2e; }
.bar a[aria-current] { background: #ffffff2e; box-shadow: inset 0 -2px 0 #fff; }
.bar .brand { font-weight: 700; font-size: 1.1rem; padding-left: 0; } .bar .end { margin-left: auto; display: flex;
  gap: 4px 12px; align-items: center; flex-wrap: wrap; }
.bar button { color: inherit; background: none; border: 1px solid #ffffff73; border-radius: 6px; padding: 3px 10px;
  font: inherit; cursor: pointer; } .bar :focus-visible { outline-color: #fff; }
.card { background: var(--surface); border: 1px solid var(--line); border-radius: 10px; padding: 16px; min-width: 0; }
.line { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; } .line.filters { gap: 10px 28px; }
.between { justify-content: space-between; }
.broad { container-name: broad; }
.grid { display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); }
.grid > * { min-width: 0; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; margin: 0; }
.facts dt { color: var(--faint); } .facts dd { margin: 0; overflow-wrap: anywhere; }
.button, .q-btn.button { display: inline-flex; align-items: center; justify-content: center; min-height: 36px;
  padding: 4px 14px; border-radius: 8px; border: 1px solid var(--line); background: var(--surface); color: var(--text);
  font: inherit; font-weight: 550; text-decoration: none; cursor: pointer; text-transform: none; }
.button:hover { background: var(--track); } .button:disabled { opacity: 1; color: var(--faint);
  cursor: not-allowed; background: var(--track); }
.button.main, .q-btn.button.main { background: var(--accent); border-color: var(--accent); color: var(--on-accent); }
.button.danger:disabled { color: var(--faint); }
.button.main:hover { filter: brightness(1.08); } .button.danger, .q-btn.button.danger { color: var(--bad); }
.chip { display: inline-block; padding: 1px 9px; border-radius: 999px; font-size: .82rem; font-weight: 600;
  background: var(--track); color: var(--text); white-space: nowrap; }
.chip-done { background: var(--good-soft); color: var(--good); }
.chip-failed, .chip-lost { background: var(--bad-soft); color: var(--bad); }
.chip-cancelled, .chip-queued { background: var(--track); color: var(--faint); }
.chip-checking, .chip-tuning, .chip-packaging { background: var(--accent-soft); color: var(--accent); }
.chip-warn { background: var(--warn-soft); color: var(--warn); } .chip:not(:last-child) { margin-right: 6px; }
.chip-ready { background: var(--good-soft); color: var(--good); }
.notice { padding: 10px 14px; border-radius: 8px; border-left: 4px solid var(--accent);
  background: var(--accent-soft); color: var(--text); }
.notice-bad { border-color: var(--bad); background: var(--bad-soft); }
.notice-warn { border-color: var(--warn); background: var(--warn-soft); }
.notice-good { border-color: var(--good); background: var(--good-soft); }
.empty { text-align: center; padding: 40px 16px; display: flex; flex-direction: column; gap: 12px;
  align-items: center; }
.wide { overflow-x: auto; width: 100%; container-type: inline-size; background:
    linear-gradient(to right, var(--surface) 30%, transparent) left / 40px 100% local no-repeat,
    linear-gradient(to left, var(--surface) 30%, transparent) right / 40px 100% local no-repeat,
    linear-gradient(to right, var(--line), transparent) left / 14px 100% scroll no-repeat,
    linear-gradient(to left, var(--line), transparent) right / 14px 100% scroll no-repeat; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; padding: 7px 10px; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; color: var(--faint); } thead th { white-space: nowrap; } thead th.reason { white-space: normal; }
th.num, td.num { text-align: right; }
th a { color: inherit; text-decoration: none; } th a:hover { text-decoration: underline; }
th[aria-sort] a { color: var(--text); } tbody tr:hover { background: var(--track); }
td, th { overflow-wrap: normal; } td .under { display: block; color: var(--faint); font-size: .84rem; }
td.name { min-width: 130px; overflow-wrap: anywhere; }
.broad td.name { min-width: 200px; } td.word { white-space: nowrap; } td.check { width: 34px; }
td .under.bad { color: var(--bad); } td .under.good { color: var(--good); }
td.num .share { margin-left: auto; }
.reason { min-width: 180px; max-width: 340px; overflow-wrap: anywhere; } td.reason .under { display: -webkit-box;
  -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; } .apart { position: absolute; }
.field { display: flex; flex-direction: column; gap: 2px; min-width: 0; } .field > span, legend { font-size: .82rem;
  color: var(--faint); }
input.native, select.native { font: inherit; color: var(--text);
  background: var(--surface); border: 1px solid var(--faint); border-radius: 8px; padding: 6px 10px; min-height: 36px;
  min-width: 0; max-width: 100%; }
input[type=checkbox] { width: 18px; height: 18px; accent-color: var(--accent); margin: 0; vertical-align: middle; }
fieldset { border: 0; padding: 0; margin: 0; min-width: 0; } .choices { display: flex; flex-wrap: wrap; gap: 4px 20px; }
a.button:hover { text-decoration: none; }
.actions { position: sticky; top: 0; z-index: 2; background: var(--surface); padding: 8px 0; gap: 8px;
  border-bottom: 1px solid var(--line); } .every { display: inline-flex; gap: 8px; align-items: center; cursor: pointer;
  padding: 0 12px 0 10px; min-height: 36px; } .every .faint { min-width: 6.5rem; }
dialog { border: 1px solid var(--line); border-radius: 10px; background: var(--surface); color: var(--text);
  padding: 20px; width: min(560px, calc(100vw - 24px)); margin: auto; } dialog::backdrop { background: #0008; }
.submit { position: sticky; bottom: 0; z-index: 2; background: var(--surface); border: 1px solid var(--line);
  border-radius: 10px 10px 0 0; padding: 12px 16px; display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center;
  box-shadow: 0 -2px 8px #0002; } .submit .notice { padding: 6px 12px; }
.filters { align-items: flex-end; } .filters .choices { min-height: 36px; align-items: center; }
.choices label, td label { display: inline-flex; gap: 8px; align-items: center; padding: 3px 0; cursor: pointer; }
.drop { border: 2px dashed var(--faint); border-radius: 12px; padding: 28px 16px; text-align: center;
  background: var(--surface); display: flex; flex-direction: column; gap: 8px; align-items: center; }
.drop.over { border-color: var(--accent); background: var(--accent-soft); }
.drop progress { width: min(100%, 360px); accent-color: var(--accent); }
input[type=file] { max-width: 100%; color: var(--text); font: inherit; }
.stack:empty, .card:empty, .line:empty, .page > div:empty { display: none; } ul.columns { columns: 240px; }
input[type=file]::file-selector-button { font: inherit; font-weight: 550; padding: 6px 14px; margin-right: 10px;
  border-radius: 8px; border: 1px solid var(--line); background: var(--surface); color: var(--text); cursor: pointer; }
details > summary { display: list-item; list-style: revert; cursor: pointer; font-weight: 600; padding: 4px 0; }
details[open] > summary { margin-bottom: 8px; }
pre { margin: 0; padding: 12px; background: var(--track); border-radius: 8px; overflow: auto; max-height: 420px;
  white-space: pre; } .snippet { position: relative; }
.snippet button { position: absolute; right: 8px; top: 8px; min-height: 28px; padding: 0 10px; font-size: .82rem; }
.share { display: block; height: 6px; border-radius: 3px; background: var(--accent); margin-top: 4px; min-width: 1px; }
.track { display: flex; height: 14px; border-radius: 4px; overflow: hidden; background: var(--track); width: 100%; }
.track i { display: block; height: 100%; background: var(--accent); border-right: 1px solid var(--surface);
  min-width: 1px; } .track i.rest { background: var(--faint); }
.track.run { height: 26px; } summary.plain { font-weight: 400; padding: 0; }
.only-narrow { display: none; } .picture { width: 100%; } .picture svg { width: 100%; height: auto; display: block; }
.picture text { fill: var(--text); font: 12px system-ui, sans-serif; } .picture .faint { fill: var(--faint); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; list-style: none; padding: 0; margin: 8px 0 0;
  font-size: .87rem; } .legend li { display: inline-flex; gap: 7px; align-items: center; }
ul.legend.only-narrow { display: none; }
.legend i { width: 14px; height: 14px; border-radius: 3px; flex: none; }
.lanes { display: grid; grid-template-columns: minmax(70px, max-content) 1fr; gap: 6px 12px; align-items: center; }
.lane { position: relative; background: var(--track); border-radius: 4px; overflow: hidden; }
.lane i { position: absolute; height: 18px; border-radius: 3px; min-width: 4px; }
.lane-name { overflow-wrap: anywhere; font-size: .87rem; } .ticks { display: flex; justify-content: space-between;
  font-size: .8rem; color: var(--faint); white-space: nowrap; }
.meter { display: flex; gap: 10px; align-items: center; min-width: 150px; } .meter .num { flex: 0 0 3.2em; }
.pages { display: flex; gap: 8px; align-items: center; flex-wrap: wrap; }
.number { padding: 4px 8px; border-radius: 6px; min-width: 24px; text-align: center; }
.number[aria-current] { background: var(--accent-soft); font-weight: 650; }
.formrow { display: grid; gap: 12px 20px; grid-template-columns: repeat(auto-fill, minmax(min(100%, 250px), 1fr));
  width: 100%; align-items: start; } .formrow > * { min-width: 0; width: 100%; }
.formrow > .full { grid-column: 1 / -1; } .full .drop { padding: 16px; } .full > .q-btn { align-self: flex-start; }
.q-field--outlined .q-field__control:before { border-color: var(--faint); }
body.body--dark .q-menu, body.body--dark .q-dialog .q-card { background: var(--surface); }
.short { width: 7rem; }
.q-field__focusable-action { opacity: 1; color: var(--faint); }
.q-field--with-bottom { padding-bottom: 0; }
.q-field__bottom, .q-field__bottom--animated { position: static; transform: none; padding: 4px 12px 0; min-height: 0;
  line-height: 1.35; }
.q-field__messages { line-height: 1.35; }
.q-field__bottom { color: var(--faint); } .q-field--error .q-field__bottom { color: var(--bad); }
.q-field--float .q-field__label, .q-field__label { color: var(--faint); }
.q-field--highlighted .q-field__label { color: var(--accent); }
.q-field__native, .q-field__input, .q-item, .q-checkbox__label { color: var(--text); }
.q-checkbox { justify-content: flex-start; flex-wrap: nowrap; min-height: 56px; margin-left: -9px; }
.q-item--active { color: var(--accent); }
.stage-step { display: flex; gap: 0; list-style: none; padding: 0; margin: 0; flex-wrap: wrap; font-size: .87rem; }
.stage-step li { color: var(--faint); display: flex; align-items: center; }
.stage-step li + li:before { content: ""; width: 22px; height: 2px; background: var(--line); margin: 0 8px; }
.stage-step li[aria-current] { color: var(--accent); font-weight: 650; } .stage-step li.past { color: var(--text); }
@media (max-width: 620px) {
  .only-wide { display: none; } .only-narrow { display: block; } ul.legend.only-narrow { display: flex; }
  h1, .h1 { font-size: 1.3rem; }
  .page { padding: 14px 12px 40px; } .card { padding: 12px; } .facts { grid-template-columns: 1fr; gap: 0; }
  .facts dd { margin-bottom: 8px; } .bar { padding: 6px 12px; }
  .bar nav { order: 3; flex-basis: 100%; margin-left: -8px; } .lanes { grid-template-columns: 1fr; gap: 2px; }
  .lane + .lane-name { margin-top: 6px; }
  .every { padding: 0; } .actions .button { padding: 2px 10px; font-size: .87rem; }
  .actions .button:disabled { display: none; }
  .submit { padding: 10px 12px; } .ticks span:nth-child(even):not(:last-child) { visibility: hidden; }
}
@media (prefers-reduced-motion: reduce) { * { transition: none !important; animation: none !important; } }
"""


_STACKED = """
  table, tbody { display: block; } thead { display: none; }
  tr { display: flex; flex-wrap: wrap; gap: 2px 14px; padding: 10px 0; border-bottom: 1px solid var(--line); }
  td, td.num, tbody th { border: 0; padding: 0; text-align: left; white-space: normal; }
  td.num .share { margin-left: 0; } td.name, tbody th { flex: 1 1 100%; } td.check + td.name { flex: 1 1 80%; }
  td.reason { min-width: 0; max-width: none; } td:empty { display: none; } .meter { display: inline-flex; }
  td[data-label]:before { content: attr(data-label) " "; color: var(--faint); }
  td .under, td.reason .under { display: inline; margin-left: 6px; } td.name .under { display: block; margin-left: 0; }
"""
"""Tables whose rows have no columns: cells follow one another, each after its label."""


def style_sheet() -> str:
    """Returns the style sheet.  Without a theme of the page, the system's preference for light or dark holds."""
    light, dark = _variables(LIGHT, 0), _variables(DARK, 1)
    light, dark = f"color-scheme:light;{light}", f"color-scheme:dark;{dark}"
    return (
        f":root{{{light}}}\n@media (prefers-color-scheme: dark) {{ body:not(.body--light) {{{dark}}} }}\n"
        f"body.body--dark {{{dark}}}\n{_PARTS}"
        f"@container (max-width: 480px) {{{_STACKED}}}\n@container broad (max-width: 800px) {{{_STACKED}}}\n"
    )
