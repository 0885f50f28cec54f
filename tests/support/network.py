"""Hosts on one machine: network namespaces on a bridge, and a relay that makes a link slow.  Linux, as root."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from types import TracebackType

__all__ = ["Network", "SlowLink", "why_no_network"]

_SUBNET = "10.77.93"
_CHUNK = 1 << 16


def why_no_network() -> str:
    """Why this process can make no hosts; "" if it can."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    if shutil.which("ip") is None:
        return "network namespaces take iproute2"
    trial = f"kintune-trial-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", trial], capture_output=True, check=False).returncode:
        return "this machine lets nobody make network namespaces"
    _ip("netns", "del", trial)
    return ""


class Network:
    """A bridge, at whose `address` this machine is to be reached, and hosts on it; a context manager."""

    def __init__(self) -> None:
        self.address = f"{_SUBNET}.1"
        self._mark = f"{os.getpid() % 100000}"
        self._bridge = f"kbr{self._mark}"
        self._hosts: dict[str, str] = {}

    def __enter__(self) -> Network:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.address}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._hosts):
            self.kill(name)
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", self._hosts[name])
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", self._bridge)

    def add(self, name: str) -> None:
        """A host of this name, connected to the bridge and to nothing else."""
        number = len(self._hosts) + 2
        space, link = f"kintune-{self._mark}-{name}", self._link(number)
        self._hosts[name] = space
        _ip("netns", "add", space)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", link, "master", self._bridge, "up")
        _ip("-n", space, "addr", "add", f"{_SUBNET}.{number}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")

    def inside(self, name: str) -> list[str]:
        """What a command is put after so that it runs on this host."""
        return ["ip", "netns", "exec", self._hosts[name]]

    def cut(self, name: str) -> None:
        """Nothing passes to or from this host any more; nobody is told."""
        _ip("link", "set", self._link_of(name), "down")

    def mend(self, name: str) -> None:
        """Its link is there again."""
        _ip("link", "set", self._link_of(name), "up")

    def kill(self, name: str) -> None:
        """Kill all processes of this host at once."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self._hosts[name]], capture_output=True, text=True, check=False
        ).stdout
        for process in listed.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), 9)

    def _link_of(self, name: str) -> str:
        return self._link(list(self._hosts).index(name) + 2)

    def _link(self, number: int) -> str:
        return f"kv{self._mark}n{number}"


class SlowLink:
    """Passes on what comes at a port of its own to another address, late and not much at once; a context manager."""

    def __init__(self, host: str, target: tuple[str, int], seconds: float, bytes_per_second: float) -> None:
        """Listen at `host`; whatever passes is `seconds` late, each way."""
        self._target = target
        self._seconds = seconds
        self._rate = bytes_per_second
        self._listener = socket.create_server((host, 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> SlowLink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            self._open += (near, far)
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(_CHUNK):
                time.sleep(self._seconds + len(data) / self._rate)
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
