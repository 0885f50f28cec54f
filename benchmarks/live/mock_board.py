"""The agent of a machine of mocks: `python -m live.mock_board URL TOKEN JOIN`; JOIN is its first message, as base64."""

from __future__ import annotations

import asyncio
import base64
import os
import sys

import msgspec

from kintune.workers.fleet.agent import Agent
from kintune.workers.fleet.messages import Join
from kintune.workers.fleet.sockets import call

WORKER, PROCESS, DEVICE = "kintune_lab.simulate.mock_worker", "kintune_lab.simulate.mock_process", "live.frail_worker"


def main() -> None:
    """Look after the machine until somebody ends this."""
    url, token, text = sys.argv[1:]
    join = msgspec.msgpack.decode(base64.b64decode(text), type=Join)
    agent = Agent(join, lambda line: print(f"{join.name}: {line}", flush=True), {WORKER, PROCESS, DEVICE})
    asyncio.run(_serve(agent, url, token))


async def _serve(agent: Agent, url: str, token: str) -> None:
    """As long as whoever has started this lives."""
    parent = os.getppid()
    serving = asyncio.ensure_future(agent.serve(lambda: call(url, token)))
    while os.getppid() == parent and not serving.done():
        await asyncio.sleep(1.0)
    serving.cancel()


if __name__ == "__main__":
    main()
