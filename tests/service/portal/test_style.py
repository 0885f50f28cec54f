from __future__ import annotations

import re

import pytest

from kintune.service.portal.style import DARK, LIGHT, LIMITS, SERIES, STAGES, style_sheet


def luminance(colour: str) -> float:
    """As the Web Content Accessibility Guidelines define it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    lighter, darker = sorted((luminance(a), luminance(b)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_words_can_be_read_on_every_ground(colours: dict[str, str]) -> None:
    pairs = [
        (word, ground)
        for word in ("text", "faint", "accent", "good", "bad", "warn")
        for ground in ("ground", "surface", "track")
    ]
    pairs += [(f"{kind}", f"{kind}-soft") for kind in ("accent", "good", "bad", "warn")]
    pairs += [("text", f"{kind}-soft") for kind in ("accent", "good", "bad", "warn")]
    pairs += [("on-accent", "accent"), ("on-header", "header")]
    poor = {pair: round(contrast(*(colours[each] for each in pair)), 2) for pair in pairs}
    assert {pair: value for pair, value in poor.items() if value < 4.5} == {}


@pytest.mark.parametrize(("colours", "screen"), [(LIGHT, 0), (DARK, 1)], ids=["light", "dark"])
def test_lines_and_bars_can_be_seen(colours: dict[str, str], screen: int) -> None:
    shown = {name: both[screen] for name, both in STAGES.items()}
    shown |= {f"limit {name}": both[screen] for name, both in LIMITS.items()}
    shown |= {f"series {number}": both[screen] for number, both in enumerate(SERIES)}
    poor = {name: round(contrast(colour, colours["surface"]), 2) for name, colour in shown.items()}
    assert {name: value for name, value in poor.items() if value < 3.0} == {}


def test_every_variable_that_is_used_is_there() -> None:
    sheet = style_sheet()
    assert set(re.findall(r"var\(--([\w-]+)\)", sheet)) <= set(re.findall(r"--([\w-]+):", sheet))
