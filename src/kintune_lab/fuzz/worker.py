"""The process that tries models, and its other end.

It reads a line for each request and answers with lines: how far it has come, then a verdict.  Where it ends, or answers
too late, the verdict says so, and the next request starts another process.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

import msgspec

from kintune.errors import cause_line
from kintune.hardware.software import forbid_torch
from kintune_lab.fuzz.compiling import OPEN, QUANTISED, leave_out_asserts, ways_of
from kintune_lab.fuzz.subject import FuzzSubject
from kintune_lab.fuzz.verdict import GraphVerdict, VerdictKind

__all__ = ["Worker", "serve"]

_MODULE = "kintune_lab.fuzz.worker"
_PATIENCE_S = 120.0
_LOOK_S = 1.0  # no longer wait counts: this process was stopped meanwhile, as the other may have been
_MODELS_A_PROCESS = 200


class _Request(msgspec.Struct, frozen=True, omit_defaults=True):
    number: int
    kept: tuple[int, ...] | None = None
    folder: str = ""
    said: str = ""


class _Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    stage: str = ""
    operators: tuple[str, ...] = ()
    verdict: GraphVerdict | None = None


class Worker:
    """A process that tries models of one kind and seed; it is started when it is needed."""

    def __init__(self, what: str, seed: int, patience: float = _PATIENCE_S) -> None:
        """`what` is drawn: "onnx", "torch", "quantised", "candidates" or "open"."""
        self._what = what
        self._seed = seed
        self._operators: tuple[str, ...] = ()
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._done = 0

    def try_model(self, number: int, kept: Collection[int] | None = None) -> GraphVerdict:
        """As `Trial.try_model`; a process that ends is a verdict, too."""
        return self._ask(_Request(number, None if kept is None else tuple(kept)))

    def save(self, number: int, kept: Collection[int], folder: Path, said: str) -> None:
        """As `Trial.save`."""
        self._ask(_Request(number, tuple(kept), str(folder), said))

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process, self._pending, self._done = None, b"", 0

    def _ask(self, request: _Request) -> GraphVerdict:
        if self._done >= _MODELS_A_PROCESS:
            self.close()
        process = self._process or self._start()
        assert process.stdin is not None
        self._done += request.kept is None
        left, stage = self._patience, ""
        try:
            process.stdin.write(msgspec.json.encode(request) + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer says so
        while True:
            line, left = self._line(left)
            if not line:
                break
            answer = msgspec.json.decode(line, type=_Answer)
            if answer.verdict is not None:
                return answer.verdict
            stage, self._operators = answer.stage, answer.operators
        hung = process.poll() is None and left <= 0
        if not hung:
            process.wait()
        code = process.returncode
        self.close()
        return _ended(stage, hung, code, request, self._operators)

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", _MODULE, self._what, str(self._seed)],
            env={**os.environ, "TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return self._process

    def _line(self, left: float) -> tuple[bytes, float]:
        """The next line of the process and the seconds `left`; it is empty if the process ends, or after that time."""
        assert self._process is not None
        assert self._process.stdout is not None
        while b"\n" not in self._pending:
            if left <= 0:
                return b"", left
            begun, waited = time.monotonic(), _waited_for_processor(self._process.pid)
            ready = select.select([self._process.stdout], [], [], _LOOK_S)[0]
            waited = _waited_for_processor(self._process.pid) - waited
            left -= max(min(time.monotonic() - begun, _LOOK_S) - max(waited, 0.0), 0.0)
            if ready:
                read = os.read(self._process.stdout.fileno(), 1 << 16)
                if not read:
                    return b"", left
                self._pending += read
        line, _, self._pending = self._pending.partition(b"\n")
        return line, left


def _waited_for_processor(pid: int) -> float:
    """The seconds for which threads of a process were ready and did not run, in total; 0 where that is not known."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # it has ended
            total += int(thread.read_text().split()[1])
    return total / 1e9


def _ended(stage: str, hung: bool, code: int | None, request: _Request, operators: tuple[str, ...]) -> GraphVerdict:
    """The verdict on a model whose process ended or hung."""
    from kintune_lab.fuzz.trial import REFERRED

    said = "no answer" if hung else f"the process ended with {code}"
    kept = tuple(range(len(operators))) if request.kept is None else request.kept
    operators = tuple(sorted({operators[at] for at in kept if at < len(operators)}))
    if stage != REFERRED:
        return GraphVerdict(VerdictKind.NOT_COMPARED, f"a reference: {said}", kept)
    return GraphVerdict(VerdictKind.HUNG if hung else VerdictKind.CRASHED, said, kept, operators)


def _subject(what: str, seed: int) -> FuzzSubject:
    if what == "torch":
        from kintune_lab.fuzz.torch_programs import TorchPrograms

        return TorchPrograms(seed)
    if what == OPEN:
        from kintune_lab.fuzz.open_graphs import OpenGraphs

        return OpenGraphs(seed)
    from kintune_lab.fuzz.onnx_graphs import OnnxGraphs

    return OnnxGraphs(seed, quantised=what == QUANTISED)


def serve(what: str, seed: int) -> None:
    """Try the models that are asked for; nothing but answers may be written to the standard output."""
    if what != "torch":
        forbid_torch()
    from kintune_lab.fuzz.trial import Trial

    leave_out_asserts()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def say(answer: _Answer) -> None:
        answers.write(msgspec.json.encode(answer) + b"\n")

    def reached(stage: str, operators: tuple[str, ...]) -> None:
        say(_Answer(stage=stage, operators=operators))

    trial = Trial(_subject(what, seed), ways_of(what), seed, reached)
    for line in sys.stdin.buffer:
        request = msgspec.json.decode(line, type=_Request)
        if request.folder:
            trial.save(request.number, request.kept or (), Path(request.folder), request.said)
            say(_Answer(verdict=GraphVerdict(VerdictKind.RIGHT)))
        else:
            try:
                verdict = trial.try_model(request.number, request.kept)
            except Exception as error:  # a mistake of the fuzzer itself
                verdict = GraphVerdict(VerdictKind.INTERNAL, f"the fuzzer: {type(error).__name__}: {cause_line(error)}")
            say(_Answer(verdict=verdict))


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
