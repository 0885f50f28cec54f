"""The command `kintune`: one file per command group, imported when it is used."""

from __future__ import annotations

from kintune.cli.entry import main

__all__ = ["main"]
