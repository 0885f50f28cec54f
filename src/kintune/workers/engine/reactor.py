"""The engine's event loop: sleeps until a child sends something, an alarm is due, or it is woken.  Nothing polls.

A child is a process of this machine, whose channel and output the reactor listens to itself, or a remote one.  What a
remote child sends is passed to the reactor (`hear`, `end`) by whoever receives it.
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

_Clock: TypeAlias = Callable[[], float]

_DEAF_S = 5.0  # by which an alarm may ring late before the deadlines of children are put off


class Listener(Protocol):
    """Callbacks for what a child says."""

    def heard(self, message: FromJob) -> None:
        """The child says `message`."""

    def ended(self, how: str) -> None:
        """The child is gone, and reaped; `how` says by what ("killed by SIGSEGV", "exited with code 1")."""


class Reactor:
    """A selector over children, with alarms.  All callbacks run inside `turn`, one at a time."""

    def __init__(self, clock: _Clock) -> None:
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
        """A remote child has sent these messages."""
        for message in messages:
            if child in self._listeners:
                self._listeners[child].heard(message)

    def end(self, child: Child, how: str) -> None:
        """A remote child is gone, or killed by now."""
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
        """Set an alarm for what a child must have done by `when`; time in which the reactor did not listen is added."""
        self.set_alarm(key, when, callback)
        self._deadlines[key] = when

    def clear_alarm(self, key: Hashable) -> None:
        """Remove the alarm of this key, if there is one."""
        self._alarms.discard(key)
        self._callbacks.pop(key, None)
        self._deadlines.pop(key, None)

    # sleeping -------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """End the sleep of `turn`; may be called from another thread or a signal handler, also after the end."""
        with contextlib.suppress(OSError):
            self._wake_end.send(b"\0")

    def turn(self, *, sleeping: bool = True, between: Callable[[], None] = lambda: None) -> None:
        """Wait until something happens, or not at all unless `sleeping`; then make all callbacks that are due.

        `between` is called after messages are heard and before alarms ring.  Only alarms that were due when the wait
        ended ring: what a child said in time is heard first, however long the callbacks take.
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
        """If an alarm rings much too late, put all deadlines off by the time in which the reactor did not listen.

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
