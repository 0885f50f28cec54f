from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kintune.workers.fleet.messages import Beat, Heard, Kill, Launch, Say, from_agent, to_agent
from kintune.workers.fleet.transport import FairSendQueue


class SlowLine:
    """Carries a message only when `carry` is called."""

    def __init__(self) -> None:
        self.carried: list[bytes] = []
        self._room = asyncio.Semaphore(0)
        self._arrived = asyncio.Semaphore(0)

    async def send(self, data: bytes) -> None:
        await self._room.acquire()
        self.carried.append(data)
        self._arrived.release()

    async def receive(self) -> bytes | None:
        raise NotImplementedError

    async def carry(self, messages: int) -> None:
        for _ in range(messages):
            self._room.release()
            await asyncio.wait_for(self._arrived.acquire(), 10)


def speak(act: Callable[[SlowLine, FairSendQueue], Awaitable[None]]) -> list[bytes]:
    async def speaking() -> list[bytes]:
        transport = SlowLine()
        async with FairSendQueue(transport) as queue:
            await act(transport, queue)
        return transport.carried

    return asyncio.run(speaking())


def parts(process: int, count: int) -> list[Say]:
    return [Say(process, b"%d" % n) for n in range(count)]


def test_one_of_which_there_is_much_to_say_does_not_hold_up_the_others() -> None:
    async def act(transport: SlowLine, queue: FairSendQueue) -> None:
        queue.say_all(parts(1, 100), 1)
        await transport.carry(5)
        queue.say(Say(2, b"short"), 2)
        queue.say(Beat())
        await transport.carry(97)

    said = speak(act)
    assert len(said) == 102
    beat = next(data for data in said if b"beat" in data)
    words = [to_agent(data) for data in said if data is not beat]
    assert [word for word in words if word != Say(2, b"short")] == parts(1, 100)
    assert words.index(Say(2, b"short")) <= 5 + 2
    assert said.index(beat) <= 5 + 3


def test_what_concerns_one_process_is_said_in_its_order() -> None:
    async def act(transport: SlowLine, queue: FairSendQueue) -> None:
        for n in range(4):
            queue.say_all([Heard(process, b"%d" % (2 * n + more)) for more in (0, 1) for process in (n % 2,)], n % 2)
            queue.say(Heard(n % 2, b"%d" % (10 + n)), n % 2)
        await transport.carry(12)

    said = [from_agent(data) for data in speak(act)]
    words = [[word.data for word in said if isinstance(word, Heard) and word.process == process] for process in (0, 1)]
    assert words == [[b"0", b"1", b"10", b"4", b"5", b"12"], [b"2", b"3", b"11", b"6", b"7", b"13"]]


def test_the_last_word_comes_first_and_is_the_last() -> None:
    async def act(transport: SlowLine, queue: FairSendQueue) -> None:
        queue.say_all(parts(2, 3), 2)
        queue.say_all(parts(1, 100), 1)
        await transport.carry(3)
        queue.say_last(Kill(1), 1)
        queue.say_last(Kill(7), 7)
        await transport.carry(4)
        queue.say(Say(1, b"anew"), 1)
        await transport.carry(1)

    said = [to_agent(data) for data in speak(act)]
    assert said[:3] == [Say(2, b"0"), Say(1, b"0"), Say(2, b"1")]
    assert said[3] == Say(1, b"1")  # which was on its way
    assert said[4:] == [Kill(7), Kill(1), Say(2, b"2"), Say(1, b"anew")]


def test_what_was_said_by_itself_is_said_before_the_last_word() -> None:
    async def act(transport: SlowLine, queue: FairSendQueue) -> None:
        queue.say(Launch(1, "a.module"), 1)
        queue.say_all(parts(1, 100), 1)
        queue.say_last(Kill(1), 1)
        await transport.carry(2)

    assert [to_agent(data) for data in speak(act)] == [Launch(1, "a.module"), Kill(1)]
