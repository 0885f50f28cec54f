"""What commands take for the class of the service's client, and for what it makes."""

from __future__ import annotations

from typing import Any

__all__ = ["StandInClient"]


class StandInClient:
    """Opened and closed as the client is; what it answers is for the tests to add."""

    def __call__(self, service: str | None, token: str | None) -> Any:
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass
