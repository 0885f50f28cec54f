"""Where the engine sleeps: until a child says something, an alarm is due, or somebody wakes it.  Nothing polls.

A child is a process of this machine, whose channel and output the reactor listens to itself, or one that is kept
elsewhere; what that one says is told to the reactor (`hear`, `end`) by whoever hears it.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable, Hashable, Iterable
from typing import Protocol, TypeAlias

import msgspec

from kintune.core.messages import FromJob
from kintune.errors import WireError
from kintune.scheduler.queue import IndexedQueue
from kintune.workers.engine.process import Child, ChildProcess

__all__ = ["Listener", "Reactor"]

Clock: TypeAlias = Callable[[], float]

_DEAF_S = 5.0  # for which this process may have been stopped or busy before that is no fault of others


class Listener(Protocol):
    """Who is told what a child says."""

    def heard(self, message: FromJob) -> None:
        """The child says `message`."""

    def ended(self, how: str) -> None:
        """The child is gone, and reaped; `how` says by what ("killed by SIGSEGV", "exited with code 1")."""


class Reactor:
    """A selector over children, with alarms.  All callbacks run inside `turn`, one at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._listeners: dict[Child, Listener] = {}
        self._alarms: IndexedQueue[Hashable] = IndexedQueue()
        self._callbacks: dict[Hashable, Callable[[], None]] = {}
        self._deadlines: dict[Hashable, float] = {}
        self._listened_at: float | None = None
        self._wake_end, self._sleep_end = socket.socketpair()
        self._wake_end.setblocking(False)
        self._sleep_end.setblocking(False)
        self._selector.register(self._sleep_end, selectors.EVENT_READ, self._drain)

    # children -------------------------------------------------------------------------------------------------------

    def attach(self, child: Child, listener: Listener) -> None:
        """Listen to `child` until it ends or is detached."""
        self._listeners[child] = listener
        if isinstance(child, ChildProcess):
            self._selector.register(child.channel, selectors.EVENT_READ, lambda: self._talk(child))
            self._selector.register(child.output_fileno, selectors.EVENT_READ, lambda: self._pass_output_on(child))

    def detach(self, child: Child) -> None:
        """Listen to it no more; what it has said and was not heard yet is lost."""
        if self._listeners.pop(child, None) is not None and isinstance(child, ChildProcess):
            self._selector.unregister(child.channel)
            self._forget_output(child)

    def hear(self, child: Child, messages: Iterable[FromJob]) -> None:
        """A child that is kept elsewhere says this."""
        for message in messages:
            if child in self._listeners:
                self._listeners[child].heard(message)

    def end(self, child: Child, how: str) -> None:
        """A child that is kept elsewhere is gone, or killed by now."""
        self._over(child, lambda: how)

    def send(self, child: Child, message: msgspec.Struct) -> None:
        """Send without waiting.  A child that is gone is noticed when its end is heard.

        Raises:
            WireError: the message is over the channel's limit.
        """
        with contextlib.suppress(OSError):
            child.post(message)
        if isinstance(child, ChildProcess):
            self._watch_for_room(child)

    @property
    def children(self) -> list[Child]:
        """The children that are listened to."""
        return list(self._listeners)

    # alarms ---------------------------------------------------------------------------------------------------------

    def set_alarm(self, key: Hashable, when: float, callback: Callable[[], None]) -> None:
        """Call back at the time `when`; an alarm of the same key is replaced."""
        self._alarms.put(key, when)
        self._callbacks[key] = callback
        self._deadlines.pop(key, None)

    def set_deadline(self, key: Hashable, when: float, callback: Callable[[], None]) -> None:
        """An alarm for what a child must have done by then; it gets longer when this process did not listen to it."""
        self.set_alarm(key, when, callback)
        self._deadlines[key] = when

    def clear_alarm(self, key: Hashable) -> None:
        """There is nothing to wait for, if there was."""
        self._alarms.discard(key)
        self._callbacks.pop(key, None)
        self._deadlines.pop(key, None)

    # sleeping -------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """End the sleep of `turn`; may be called from another thread or a signal handler, also after the end."""
        with contextlib.suppress(OSError):
            self._wake_end.send(b"\0")

    def turn(self, *, sleeping: bool = True, between: Callable[[], None] = lambda: None) -> None:
        """Sleep until something happens, unless not `sleeping`; then call back all whom it concerns.

        `between` is called before alarms ring.  Those ring that were due when the sleep ended: what was said in time,
        is heard before, however long the callbacks take.
        """
        due = self._alarms.peek()
        timeout = None if due is None else max(0.0, due[0] - self._clock())
        if not sleeping:
            timeout = 0.0
        ready = self._selector.select(timeout)
        now = self._clock()
        self._excuse(now)
        for key, _ in ready:
            if self._selector.get_map().get(key.fd) is key:  # not detached by an earlier callback
                key.data()
        between()
        while (due := self._alarms.peek()) is not None and due[0] <= now:
            name = due[1]
            callback = self._callbacks[name]
            self.clear_alarm(name)
            callback()

    def close(self) -> None:
        """Kill what is still attached, and let go of everything."""
        for child in self.children:
            self.detach(child)
            child.kill()
        self._selector.close()
        self._wake_end.close()
        self._sleep_end.close()

    def _excuse(self, now: float) -> None:
        """Move all deadlines if an alarm rings much too late: by the time for which nobody was listened to.

        This process was stopped then, perhaps with the whole machine, or kept busy by a callback.
        """
        due, since = self._alarms.peek(), self._listened_at
        self._listened_at = now
        if due is None or since is None or now - max(since, due[0]) <= _DEAF_S:
            return
        for key, when in self._deadlines.items():
            self._deadlines[key] = when + now - since
            self._alarms.put(key, when + now - since)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._sleep_end.recv(4096):
                pass

    def _talk(self, child: ChildProcess) -> None:
        with contextlib.suppress(OSError):
            child.channel.flush()
        self._watch_for_room(child)
        try:
            messages = child.channel.receive()
        except WireError as error:
            cause = f"said what is no message: {error}"
            self._over(child, lambda: child.kill(cause))
            return
        if messages is None:
            self._over(child, child.reap)
            return
        self.hear(child, messages)

    def _over(self, child: Child, how: Callable[[], str]) -> None:
        """Listen to it no more, and then end it, which closes what was listened to."""
        listener = self._listeners.get(child)
        if listener is not None:
            self.detach(child)
            listener.ended(how())

    def _watch_for_room(self, child: ChildProcess) -> None:
        if child in self._listeners:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if child.channel.unsent else 0)
            key = self._selector.get_key(child.channel)
            if key.events != wanted:
                self._selector.modify(child.channel, wanted, key.data)

    def _pass_output_on(self, child: ChildProcess) -> None:
        if not child.pass_output_on():
            self._forget_output(child)

    def _forget_output(self, child: ChildProcess) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(child.output_fileno)
