"""The headers of answers that a browser saves as a file."""

from __future__ import annotations

from urllib.parse import quote

__all__ = ["attachment"]


def attachment(name: str) -> dict[str, str]:
    """Returns the header that names the file, in any alphabet (RFC 6266)."""
    quoted = quote(name, safe="")
    named = f'filename="{name}"' if quoted == name else f"filename*=UTF-8''{quoted}"
    return {"Content-Disposition": f"attachment; {named}"}
