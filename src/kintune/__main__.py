"""`python -m kintune` is the command `kintune`."""

from __future__ import annotations

import sys

from kintune.cli import main

if __name__ == "__main__":
    sys.exit(main())
