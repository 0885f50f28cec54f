"""Tries many drawn graphs in several processes, reduces those that fail, and goes on where it was interrupted."""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec

from kintune.errors import InputError
from kintune_lab.fuzz.reduction import reduced
from kintune_lab.fuzz.verdict import FAULTS, GraphVerdict, VerdictKind
from kintune_lab.fuzz.worker import Worker

__all__ = ["Campaign", "CampaignCounts", "Fault"]

_EACH_S = 60.0
_SAVED = 3  # graphs of one signature
_UNLIKE = re.compile(r"0x[0-9a-f]+|-?\b\d+(\.\d+)?(e[-+]?\d+)?\b|\b[a-z]+\d+\b")


class _Line(msgspec.Struct, frozen=True):
    """A line of the log: the number of a graph and its verdict, and the signature of a fault."""

    number: int
    verdict: GraphVerdict
    signature: str = ""


class Fault(msgspec.Struct, frozen=True):
    """A fault with its signature, which faults of one cause share, and the smallest part of the graph that has it."""

    signature: str
    number: int
    verdict: GraphVerdict


class CampaignCounts(msgspec.Struct):
    """How many graphs went which way, and what was seen on the way."""

    kinds: Counter[VerdictKind] = msgspec.field(default_factory=Counter)
    nodes: int = 0
    signatures: Counter[str] = msgspec.field(default_factory=Counter)
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    refused_graphs: Counter[str] = msgspec.field(default_factory=Counter)
    disputed: Counter[str] = msgspec.field(default_factory=Counter)
    operators: Counter[str] = msgspec.field(default_factory=Counter)
    programs: Counter[str] = msgspec.field(default_factory=Counter)
    unbuilt: Counter[str] = msgspec.field(default_factory=Counter)

    @property
    def graphs(self) -> int:
        """All graphs."""
        return sum(self.kinds.values())

    @property
    def faults(self) -> int:
        """The graphs that are faults."""
        return sum(self.kinds[kind] for kind in FAULTS)

    def add(self, verdict: GraphVerdict, signature: str) -> None:
        """Count a graph."""
        self.kinds[verdict.kind] += 1
        self.nodes += len(verdict.kept)
        self.operators.update(verdict.operators)
        self.refused.update({text.partition(":")[0] for text in verdict.refused})
        if verdict.kind is VerdictKind.REFUSED:
            self.refused_graphs[_why(verdict.reason)] += 1
        self.programs.update(verdict.programs)
        self.unbuilt.update(verdict.unbuilt)
        self.disputed.update({text.partition(":")[0] for text in verdict.disputed})
        if signature:
            self.signatures[signature] += 1

    def line(self, seconds: float, graphs: int) -> str:
        """All counts in one line; `graphs` were tried in the last `seconds`."""
        said = ", ".join(f"{self.kinds[kind]} {kind.value}" for kind in VerdictKind)
        refused = sum(self.refused.values())
        speed = graphs / seconds if seconds > 0 else 0.0
        return f"{self.graphs} graphs: {said}; nodes refused in {refused}; {speed:.2f} graphs a second"


class Campaign:
    """Models 0 to `models` - 1 of a seed; `output` has a log, `WHAT-SEED.jsonl`, and a folder for each saved fault."""

    def __init__(
        self,
        what: str,
        models: int,
        seed: int,
        output: Path,
        processes: int,
        say: Callable[[str], None],
        start: Callable[[str, int], Worker] = Worker,
    ) -> None:
        """Read the log of an earlier run with this seed.

        Raises:
            InputError: it cannot be read.
        """
        self._what = what
        self._models = models
        self._seed = seed
        self._output = output
        self._processes = processes
        self._say = say
        self._start = start
        self._log = output / f"{what}-{seed}.jsonl"
        self._lock = threading.Lock()
        self.counts = CampaignCounts()
        self.faults: list[Fault] = []
        self._known = set(self._read())

    def run(self) -> CampaignCounts:
        """Try all graphs that the log does not have."""
        todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(self._models):
            if number not in self._known:
                todo.put(number)
        before, at = self.counts.graphs, time.monotonic()
        with ThreadPoolExecutor(self._processes) as pool:
            running = {pool.submit(self._work, todo) for _ in range(self._processes)}
            try:
                while running:
                    over, running = wait(running, max(0.0, at + _EACH_S - time.monotonic()), FIRST_COMPLETED)
                    for each in over:
                        each.result()
                    if time.monotonic() - at >= _EACH_S:
                        with self._lock:
                            self._say(self.counts.line(time.monotonic() - at, self.counts.graphs - before))
                            before, at = self.counts.graphs, time.monotonic()
            finally:
                while not todo.empty():  # the others end after the graph that they have begun
                    with contextlib.suppress(queue.Empty):
                        todo.get_nowait()
        return self.counts

    def _work(self, todo: queue.SimpleQueue[int]) -> None:
        worker = self._start(self._what, self._seed)
        try:
            while True:
                try:
                    number = todo.get_nowait()
                except queue.Empty:
                    return
                verdict = worker.try_model(number)
                signature = ""
                if verdict.kind in FAULTS:
                    verdict, signature = self._reduce(worker, number, verdict)
                self._note(number, verdict, signature)
        finally:
            worker.close()

    def _reduce(self, worker: Worker, number: int, verdict: GraphVerdict) -> tuple[GraphVerdict, str]:
        """The verdict on the smallest part that fails in the same way, and its signature."""
        smallest = [verdict]

        def fails(part: object) -> bool:
            assert isinstance(part, list)
            found = worker.try_model(number, part)
            if found.kind is verdict.kind:
                smallest[0] = found
            return found.kind is verdict.kind

        part = reduced(verdict.kept, lambda tried: fails(list(tried)))
        found = msgspec.structs.replace(
            smallest[0], kept=tuple(part), refused=verdict.refused, disputed=verdict.disputed, seconds=verdict.seconds
        )
        signature = _signature(found)
        with self._lock:
            seen = self.counts.signatures[signature]
        if seen < _SAVED:
            folder = self._output / "faults" / f"{_file_name(signature)}-{self._seed}-{number}"
            said = f"graph {number} of seed {self._seed}, nodes {list(part)}: {found.kind.value}\n{found.reason}"
            worker.save(number, part, folder, said)
            self._say(f"{found.kind.value}: {signature}: graph {number}: {found.reason[:200]}")
        return found, signature

    def _note(self, number: int, verdict: GraphVerdict, signature: str) -> None:
        with self._lock:
            with open(self._log, "ab") as file:
                file.write(msgspec.json.encode(_Line(number, verdict, signature)) + b"\n")
            self._count(_Line(number, verdict, signature))

    def _count(self, line: _Line) -> None:
        self.counts.add(line.verdict, line.signature)
        if line.signature:
            self.faults.append(Fault(line.signature, line.number, line.verdict))

    def _read(self) -> Iterator[int]:
        """The numbers of the graphs in the log, counted; an incomplete last line is left out."""
        try:
            content = self._log.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(f"{self._log}: cannot be read: {error.strerror}") from error
        for line in content.splitlines():
            try:
                read = msgspec.json.decode(line, type=_Line)
            except msgspec.DecodeError:
                continue
            if read.number < self._models:
                self._count(read)
                yield read.number


def _signature(verdict: GraphVerdict) -> str:
    """What faults of one cause have in common: the kind, the operators of the smallest part, and the message."""
    reason = "" if verdict.kind is VerdictKind.WRONG else _UNLIKE.sub("#", verdict.reason)[:80]
    return f"{verdict.kind.value}: {' '.join(verdict.operators)}{f': {reason}' if reason else ''}"


def _why(reason: str) -> str:
    """The reason for which a graph is refused without the name of its file, details and numbers."""
    return _UNLIKE.sub("#", reason.removeprefix("model.onnx: ").partition(":")[0])[:80]


def _file_name(signature: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", signature).strip("-")[:70]
