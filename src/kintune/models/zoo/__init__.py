"""Published networks as real ONNX files, drawn from seeds and written without a download.

`names` and `check` cost nothing; `build` and `write` import what they need when they are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kintune.models.zoo.registry import build, check, names

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["build", "check", "names", "write"]


def write(name: str, directory: Path | str, *, seed: int = 0, **options: int) -> Path:
    """Write a network as an ONNX file; see `kintune.models.zoo.render.write`."""
    from kintune.models.zoo.render import write as render

    return render(name, directory, seed=seed, **options)
