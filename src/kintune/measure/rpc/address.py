"""Addresses of TVM RPC servers and trackers.  It does not import TVM."""

from __future__ import annotations

import ipaddress
import re

import msgspec

from kintune.errors import TargetError

__all__ = ["RpcAddress", "parse_address", "require_loopback"]

_FORM = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})(?:/(?P<key>[\w.-]{1,32}))?", re.ASCII)


class RpcAddress(msgspec.Struct, frozen=True):
    """The address of a server or, with a `key`, of a tracker that has servers under this key."""

    host: str
    port: int
    key: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" + (f"/{self.key}" if self.key else "")


def parse_address(text: str) -> RpcAddress:
    """Parses `127.0.0.1:9090`, a server, or `127.0.0.1:9190/pi4`, a tracker's servers under that key.

    Raises:
        TargetError: it is neither, or it is not on this machine.
    """
    found = _FORM.fullmatch(text)
    if found is None or not 0 < int(found["port"]) < 1 << 16:
        raise TargetError(f"RPC server {text!r}: name it as HOST:PORT, or as HOST:PORT/KEY what a tracker has")
    address = RpcAddress(found["host"].strip("[]"), int(found["port"]), found["key"] or "")
    require_loopback(address.host, f"RPC server {text!r}")
    return address


def require_loopback(host: str, what: str) -> None:
    """Checks that only this machine's own users can reach the host of `what`: such a server has no authentication.

    Raises:
        TargetError: the host is not a loopback address.
    """
    try:
        here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = False
    if not here:
        raise TargetError(
            f"{what}: is not on this machine's loopback; whoever reaches such a server can run anything on it, so "
            "have it listen on the board's own 127.0.0.1 and make a way to it: ssh -L 9090:127.0.0.1:9090 BOARD"
        )
