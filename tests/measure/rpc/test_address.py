from __future__ import annotations

import pytest

from kintune.errors import TargetError
from kintune.measure.rpc.address import RpcAddress, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9090", RpcAddress("127.0.0.1", 9090)),
        ("localhost:9090", RpcAddress("localhost", 9090)),
        ("[::1]:9090", RpcAddress("::1", 9090)),
        ("127.0.0.1:9190/pi-4", RpcAddress("127.0.0.1", 9190, "pi-4")),
    ],
)
def test_a_server_and_a_trackers_key(text: str, address: RpcAddress) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "9090", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:9090/", "a b:1"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(TargetError, match="name it as HOST:PORT, or as HOST:PORT/KEY"):
        parse_address(text)


@pytest.mark.parametrize("text", ["10.0.0.7:9090", "board.example:9090", "[fe80::1]:9090", "0.0.0.0:9090"])
def test_nobody_elsewhere_is_asked_for_it(text: str) -> None:
    """A server that others can reach runs whatever they send it."""
    with pytest.raises(TargetError, match=r"is not on this machine's loopback; .* ssh -L"):
        parse_address(text)
