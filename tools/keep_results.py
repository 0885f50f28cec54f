#!/usr/bin/env python3
"""Keep what a bench or a script has measured: its tables in `notebook/results`, its measurements in `notebook/records`.

    python tools/keep_results.py FOLDER [--name NAME]    # the output of `kintune bench`
    python tools/keep_results.py records.sqlite          # records that a script has filled, or `kintune records export`

Measurements of the same candidate on the same type of device are kept once.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from kintune.errors import InputError, KintuneError
from kintune.records import Store
from kintune.records.portable import contents_of, exported_contents
from kintune_lab.corpus import add_to_corpus

ROOT = Path(__file__).resolve().parents[1]
TABLES = (".csv", ".json", ".md", ".toml", ".gz")
EXPORTED = ".jsonl.gz"


def keep(source: Path, notebook: Path, name: str) -> list[str]:
    """Keeps a folder, a database of records or a file of exported ones; returns a line for each thing that was kept.

    Raises:
        InputError: there is no such file or folder.
        RecordsError: records cannot be read.
        StorageError: a file cannot be written.
    """
    if not source.exists():
        raise InputError(f"{source}: no such file or folder")
    kept = []
    exported = [source] if source.is_file() else sorted(source.glob(f"*{EXPORTED}"))
    for path in exported:
        if path.name.endswith(EXPORTED):
            added = add_to_corpus(notebook / "records", name, exported_contents(path))
        else:
            with Store.open(str(path), create=False) as store, store.snapshot():
                added = add_to_corpus(notebook / "records", name, contents_of(store))
        kept += [f"records/{file}: {count} new measurements" for file, count in added.items()]
    if source.is_dir():
        folder = notebook / "results" / name
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(source.iterdir()):
            if path.suffix in TABLES and path not in exported:
                shutil.copy(path, folder)
                kept.append(f"results/{name}/{path.name}")
    return kept


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what was kept; returns 2 where something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--name", help="of the folder of tables, and of the run in the records; default: of the source")
    parser.add_argument("--notebook", type=Path, default=ROOT / "notebook")
    options = parser.parse_args(arguments)
    try:
        kept = keep(options.source, options.notebook, options.name or options.source.name.partition(".")[0])
    except KintuneError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(kept) or "nothing new")
    return 0


if __name__ == "__main__":
    sys.exit(main())
