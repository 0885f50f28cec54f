"""Writes inputs for the trained networks of `benchmarks/compare_trained.toml`, made of what is on any machine.

    python benchmarks/trained_inputs.py models/inputs

For each network there is a folder with 32 sets of inputs, an `.npz` file each: parts of a photograph of a person for
`nudenet`, lines of text for `ocr_recogniser`, pages of text in four directions for `orientation`, and files of many
kinds for `magika`.  The photograph and the fonts are matplotlib's, the files are Python's own.  The same machine writes
the same inputs again.
"""

from __future__ import annotations

import sys
import sysconfig
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kintune.runtime.inputs import write_arrays

__all__ = ["MAKERS", "main", "write_inputs"]

_SETS = 32
_TEXT = Path(__file__).read_text().split()

_Array = NDArray[Any]
_Maker = Callable[[np.random.Generator], _Array]


def _photograph(rng: np.random.Generator) -> _Array:
    """A part of a photograph, for `nudenet`: shape (1, 3, 320, 320), from 0 to 1."""
    import matplotlib
    from PIL import Image

    path = Path(matplotlib.get_data_path(), "sample_data", "grace_hopper.jpg")
    with Image.open(path) as photograph:
        image = photograph.convert("RGB")
    width, height = image.size
    side = int(min(width, height) * rng.uniform(0.4, 1.0))
    left, top = rng.integers(0, width - side + 1), rng.integers(0, height - side + 1)
    part = image.crop((int(left), int(top), int(left) + side, int(top) + side)).resize((320, 320))
    values = np.asarray(part, np.float32) / 255 * np.float32(rng.uniform(0.6, 1.2))
    if rng.integers(2):
        values = values[:, ::-1]
    return np.ascontiguousarray(np.clip(values, 0, 1).transpose(2, 0, 1)[None])


def _written(rng: np.random.Generator, size: tuple[int, int], letters: int, lines: int) -> Any:
    """An image of dark text on light ground, `lines` lines of words with letters of so many pixels."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    name = ["DejaVuSans", "DejaVuSerif", "DejaVuSansMono", "DejaVuSans-Bold"][rng.integers(4)]
    font = ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", f"{name}.ttf")), letters)
    paper, ink = int(rng.integers(190, 256)), int(rng.integers(0, 90))
    image = Image.new("RGB", size, (paper,) * 3)
    columns = max(4, int(size[0] / (0.62 * letters)))
    words = " ".join(_TEXT[int(at)] for at in rng.integers(0, len(_TEXT), 6 * lines))
    said = "\n".join(textwrap.wrap(words, columns)[:lines])
    ImageDraw.Draw(image).multiline_text((int(0.2 * letters), int(0.1 * letters)), said, (ink,) * 3, font)
    noisy = np.asarray(image, np.float32) + rng.normal(0, rng.uniform(0, 8), (size[1], size[0], 1))
    return np.clip(noisy, 0, 255)


def _line(rng: np.random.Generator) -> _Array:
    """A line of text, for `ocr_recogniser`: shape (1, 3, 48, 320), from -1 to 1."""
    values = _written(rng, (320, 48), int(rng.integers(22, 36)), 1)
    return np.ascontiguousarray((values / 127.5 - 1).astype(np.float32).transpose(2, 0, 1)[None])


def _page(rng: np.random.Generator) -> _Array:
    """A page of text in one of four directions, for `orientation`: shape (1, 3, 224, 224), normalised by channel."""
    values = _written(rng, (224, 224), int(rng.integers(9, 20)), int(rng.integers(6, 20)))
    values = np.rot90(values, int(rng.integers(4))) / 255
    values = (values - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    return np.ascontiguousarray(values.astype(np.float32).transpose(2, 0, 1)[None])


_PADDING = 256
_HALF = 1024


def _content(rng: np.random.Generator) -> _Array:
    """The first and the last 1024 bytes of a file, without spaces around them, for `magika`: shape (1, 2048), int32."""
    data = _files()[int(rng.integers(len(_files())))].read_bytes()
    first, last = data[:_HALF].lstrip()[:_HALF], data[-_HALF:].rstrip()
    values = np.full((1, 2 * _HALF), _PADDING, np.int32)
    values[0, : len(first)] = np.frombuffer(first, np.uint8)
    values[0, 2 * _HALF - len(last) :] = np.frombuffer(last, np.uint8)
    return values


_OF_A_KIND = 24
_LEAST_BYTES = 128


@cache
def _files() -> list[Path]:
    """Files of each kind, by the ends of their names, among those of Python and of matplotlib's data."""
    import matplotlib

    kinds: dict[str, list[Path]] = {}
    for root in (sysconfig.get_path("stdlib"), matplotlib.get_data_path()):
        for path in sorted(Path(root).rglob("*.*")):
            of_kind = kinds.setdefault(path.suffix, [])
            if len(of_kind) < _OF_A_KIND and path.is_file() and path.stat().st_size > _LEAST_BYTES:
                of_kind.append(path)
    return [path for kind in sorted(kinds) for path in kinds[kind]]


MAKERS: dict[str, tuple[str, _Maker]] = {
    "nudenet": ("images", _photograph),
    "ocr_recogniser": ("x", _line),
    "orientation": ("x", _page),
    "magika": ("bytes", _content),
}
"""By network: the name of its input, and the function that draws one."""


def write_inputs(folder: Path, sets: int = _SETS) -> None:
    """Write so many sets of inputs of each network to a folder of its name."""
    for name, (tensor, make) in MAKERS.items():
        there = folder / name
        there.mkdir(parents=True, exist_ok=True)
        for number in range(sets):
            write_arrays(there / f"{number:02}.npz", {tensor: make(np.random.default_rng(number))})
        print(f"{there}: {sets} sets")


def main(argv: list[str]) -> None:
    """Write the inputs to the folder that the command line names."""
    if len(argv) != 1:
        raise SystemExit(f"usage: python {sys.argv[0]} FOLDER")
    write_inputs(Path(argv[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
