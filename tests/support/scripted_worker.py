"""A worker that does what its items say, be it dying: `python -m tests.support.scripted_worker --fd N`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kintune.core.messages import ItemDone, ToWorker
from kintune.errors import DeviceUnwell, InputError, StorageError
from kintune.wire.channel import Channel
from kintune.wire.child import connect
from kintune.wire.staging import hand_over, locate, place_of
from kintune.wire.worker_loop import hello, refusal, serve
from tests.support.script import Act, Deed

__all__ = ["ScriptedHandler", "main"]


class ScriptedHandler:
    """Does deeds; `context` is put before every echo."""

    def __init__(self, channel: Channel[ToWorker]) -> None:
        self._channel = channel
        self._context = b""

    def begin(self, kind: str, context: bytes) -> None:
        """Keep the context."""
        self._context = context

    def item(self, payload: bytes) -> bytes:
        """Do the deed."""
        deed = msgspec.msgpack.decode(payload, type=Deed)
        act = deed.act if first_time(deed.once) else Act.ECHO
        match act:
            case Act.FAIL:
                raise RuntimeError(deed.text)
            case Act.REFUSE:
                raise InputError(deed.text)
            case Act.FULL:
                raise StorageError(deed.text)
            case Act.UNWELL:
                raise DeviceUnwell(deed.text)
            case Act.READ:
                return Path(locate(deed.text)).read_bytes()
            case Act.ORPHAN:
                sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
                return b"%d" % subprocess.Popen(sleeper, start_new_session=True).pid
            case Act.MAKE:
                Path(place_of(deed.text)).write_text(deed.text)
                hand_over(deed.text)
                return b""
            case Act.KILL:
                print("about to die", flush=True)
                os.kill(os.getpid(), deed.number)
            case Act.EXIT:
                os._exit(deed.number)
            case Act.HANG:
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
                threading.Event().wait()
            case Act.FLOOD:
                flood(deed.text.encode(), deed.number or sys.maxsize)
            case Act.BIG:
                return bytes(deed.number)
            case Act.GARBAGE:
                os.write(self._channel.fileno(), b"\x03\x00\x00\x00???")
            case Act.STALE:
                self._channel.send(ItemDone("nobody's", 7, 0, b"stale"))
            case Act.ECHO:
                pass
        return self._context + deed.text.encode()


def flood(text: bytes, times: int) -> None:
    """Print it so many times, without waiting for anything."""
    while times > 0:
        os.write(1, text * min(times, 1 << 16))
        times -= 1 << 16


def first_time(path: str) -> bool:
    """Whether the file was not there; it is now."""
    if not path:
        return True
    try:
        Path(path).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def main(argv: Sequence[str] | None = None) -> None:
    """Work.  `--kind K` is what to greet as; `--refuse TEXT` refuses, `--die N` leaves with that code instead."""
    channel, arguments = connect(argv)
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    if "--refuse" in options:
        channel.send(refusal(InputError(options["--refuse"])))
        return
    if "--die" in options:
        print("cannot import what I need", flush=True)
        sys.exit(int(options["--die"]))
    serve(channel, hello(options.get("--kind", "build"), about=b"scripted"), ScriptedHandler(channel))


if __name__ == "__main__":
    main()
