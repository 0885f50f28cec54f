"""The child that runs chosen kernels between pages: `python -m kintune.runtime.guarded_process FILE`.

What it does is in `guarded_run`, which it imports without PyTorch: TVM would import that, for seconds.
"""

from __future__ import annotations

from kintune.hardware.software import forbid_torch

__all__ = ["main"]


def main() -> None:
    """Runs what standard input asks for."""
    forbid_torch()

    from kintune.runtime import guarded_run

    guarded_run.main()


if __name__ == "__main__":
    main()
