"""A session with a TVM RPC server: what the board behind it is told to keep and to run."""

from __future__ import annotations

import contextlib
import gc
import socket
import struct
from typing import Any

import tvm.rpc
from tvm.rpc import base

from kintune.errors import DeviceError
from kintune.measure.rpc.address import Address, require_loopback

__all__ = ["Session"]

_BIG_CORES = 1  # the runtime's kBig: where cores differ, the fast ones
_PATIENCE_S = 60.0


class Session:
    """One session; a server has one at a time.  Everything that it holds is gone with it."""

    def __init__(self, address: Address, threads: int) -> None:
        """Connect, and give programs so many threads; waits a minute for whoever has a session there.

        Raises:
            DeviceError: nobody answers, or it is no RPC server.
            TargetError: a tracker names a server on another machine.
        """
        try:
            self._session = _request(address) if address.key else _connect(address)
            self.device: Any = self._session.cpu(0)
            self._session.get_function("runtime.config_threadpool")(_BIG_CORES, threads)
        except (RuntimeError, OSError) as error:  # the runtime's own kind is a RuntimeError
            raise DeviceError(f"the RPC server at {address} cannot be used: {_first_line(error)}") from error
        self._loaded = 0

    def load(self, library: bytes) -> Any:
        """The module of a shared library for the board."""
        self._loaded += 1
        name = f"kintune-{self._loaded}.so"
        self._session.upload(bytearray(library), name)
        try:
            return self._session.load_module(name)
        finally:
            self._session.remove(name)

    def close(self) -> None:
        """Hang up, so that somebody else can have a session; whoever still holds something of it holds nothing."""
        gc.collect()  # what is still there is let go while there is somebody to tell
        with contextlib.suppress(RuntimeError):
            self._session.get_function("CloseRPCConnection")()


def _connect(address: Address) -> Any:
    """A session with a server.

    The compiler's client would wait for ever for one that hears and says nothing.  So first it is asked for a session
    under a key that it does not have, which it must refuse.
    """
    key = b"client:is somebody there?"
    with socket.create_connection((address.host, address.port), timeout=_PATIENCE_S) as line:
        line.sendall(struct.pack("<ii", base.RPC_MAGIC, len(key)) + key)
        answer = line.recv(4, socket.MSG_WAITALL)
    if answer != struct.pack("<i", base.RPC_CODE_MISMATCH):
        raise ConnectionError("who answers is no RPC server")
    return tvm.rpc.connect(address.host, address.port)


def _request(address: Address) -> Any:
    """A session with whichever server a tracker gives us.

    Raises:
        TargetError: one of them is on another machine.
    """
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_PATIENCE_S)  # the tracker says nothing as long as it has no server to give
    try:
        tracker = tvm.rpc.connect_tracker(address.host, address.port)
    finally:
        socket.setdefaulttimeout(before)
    for server in tracker.summary()["server_info"]:
        if server["key"] == f"server:{address.key}":
            require_loopback(str(server["addr"][0]), f"the server {server['addr'][0]} of tracker {address}")
    return tracker.request(address.key, max_retry=1)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
