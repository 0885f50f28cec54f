"""A session with a TVM RPC server, which loads programs on the board behind it."""

from __future__ import annotations

import contextlib
import gc
import socket
import struct
from typing import Any

import tvm.rpc
from tvm.rpc import base

from kintune.errors import DeviceError, cause_line
from kintune.measure.rpc.address import RpcAddress, require_loopback

__all__ = ["SESSION_S", "RpcSession"]

SESSION_S = 1800.0
"""Seconds after which a server ends a session, so that a program that never ends does not hold the board."""

_BIG_CORES = 1  # the runtime's kBig: where cores differ, the fast ones
_PATIENCE_S = 60.0
_GARBAGE = (RuntimeError, OSError, AttributeError, ValueError, TypeError, KeyError, IndexError, struct.error)
"""Errors of the compiler's client: its own kind (a RuntimeError), and others when the answer is garbage."""


class RpcSession:
    """One session; a server has one at a time.  Its end frees everything that it holds on the board."""

    def __init__(self, address: RpcAddress, threads: int, patience_s: float | None = None) -> None:
        """Connects, and gives programs so many threads.

        It waits at most `patience_s` seconds, by default a minute, for the end of other sessions.

        Raises:
            DeviceError: nobody answers, or it is no RPC server.
            TargetError: a tracker names a server on another machine.
        """
        patience_s = _PATIENCE_S if patience_s is None else patience_s
        try:
            host, port, key = _ask(address, patience_s) if address.key else (address.host, address.port, "")
            _knock(host, port, patience_s)
            self._session = tvm.rpc.connect(host, port, key, session_timeout=SESSION_S)
            self.device: Any = self._session.cpu(0)
            self._session.get_function("runtime.config_threadpool")(_BIG_CORES, threads)
        except _GARBAGE as error:
            raise DeviceError(f"the RPC server at {address} cannot be used: {cause_line(error)}") from error
        self._loaded = 0

    def load(self, library: bytes) -> Any:
        """Loads a shared library on the board."""
        self._loaded += 1
        name = f"kintune-{self._loaded}.so"
        self._session.upload(bytearray(library), name)
        try:
            return self._session.load_module(name)
        finally:
            self._session.remove(name)

    def close(self) -> None:
        """Ends the session, so that the server takes another one; modules and tensors of this one become invalid."""
        gc.collect()  # frees remote objects while the session can still be told
        with contextlib.suppress(RuntimeError):
            self._session.get_function("CloseRPCConnection")()


def _ask(address: RpcAddress, patience_s: float) -> tuple[str, int, str]:
    """Asks a tracker for a server; returns its host, its port and the key that it expects.

    Raises:
        ConnectionError: it is no tracker, or it has no server.
        TargetError: the server is on another machine.
    """
    with socket.create_connection((address.host, address.port), timeout=patience_s) as line:
        line.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
        if base.recvall(line, 4) != struct.pack("<i", base.RPC_TRACKER_MAGIC):
            raise ConnectionError("the peer is not a tracker")
        base.sendjson(line, [base.TrackerCode.REQUEST, address.key, "", 1])
        code, (host, port, key) = base.recvjson(line)
    if code != base.TrackerCode.SUCCESS:
        raise ConnectionError(f"the tracker answers {code}")
    require_loopback(str(host), f"the server {host} of tracker {address}")
    return str(host), int(port), str(key)


def _knock(host: str, port: int, patience_s: float) -> None:
    """Checks that a server answers: it must refuse a session under a key that it does not have.

    The compiler's own client would wait forever for a server that does not answer.

    Raises:
        ConnectionError: it is no RPC server.
    """
    key = b"client:is-somebody-there"
    with socket.create_connection((host, port), timeout=patience_s) as line:
        line.sendall(struct.pack("<ii", base.RPC_MAGIC, len(key)) + key)
        answer = line.recv(4, socket.MSG_WAITALL)
    if answer != struct.pack("<i", base.RPC_CODE_MISMATCH):
        raise ConnectionError("the peer is not an RPC server")
