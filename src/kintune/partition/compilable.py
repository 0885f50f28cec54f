"""Tests whether a node can be imported, lowered and compiled alone, and caches the answers.

A node is compiled unless one of its kind was: then importing and lowering it is enough.

Answers are stored in a file of the user's cache.  Before a node is tried, a line is written for it: if the process dies
during the test, the next process finds the line and leaves this node to onnxruntime.  After an hour it is tried again,
since a process may be killed for other reasons.
"""

from __future__ import annotations

import functools
import hashlib
import os
import time
from pathlib import Path

import msgspec
import platformdirs
import tvm

from kintune.compiler.graph.assemble import assemble_plan
from kintune.compiler.graph.lower import lower
from kintune.core.model import ModelRef
from kintune.core.version import __version__
from kintune.errors import KintuneError, UnsupportedOperators, cause_line
from kintune.models.import_onnx import import_onnx
from kintune.models.imported_module import complete_model
from kintune.models.onnx import OnnxModel
from kintune.models.onnx_nodes import DEFAULT_DOMAINS
from kintune.models.ref import ONNX
from kintune.partition.single_node import SingleNode
from kintune.wire.channel import UNREADABLE

__all__ = ["CompilableNodes"]

_TRYING = "the compiler ended the process when it was tried"
_AGAIN_S = 3600.0  # after this time, a node during whose test a process died is tried again


class _Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the file: the digest of a node or its kind, and why it cannot be compiled, or "" if it can.

    While a node is tried, `process` is the id of the process that tries it, and `since` the time in seconds since the
    epoch when it began.  A later line whose `why` is None cancels this one.
    """

    node: str
    why: str | None
    process: int = 0
    since: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether the line is an answer.

        A test that did not end is an answer for an hour, unless another process is still busy with it.
        """
        if self.why != _TRYING:
            return self.why is not None
        return time.time() - self.since < _AGAIN_S and not _is_another_at_work(self.process)


class CompilableNodes:
    """The answers for one target."""

    def __init__(self, target: tvm.target.Target, directory: Path | None = None) -> None:
        """Read the known answers from `directory`, by default a folder in the user's cache."""
        self._target = target
        folder = directory if directory is not None else Path(platformdirs.user_cache_dir("kintune")) / "compilable"
        self._path = folder / f"{_version(str(target))}.jsonl"
        self._answers = _read(self._path)

    def why_not(self, node: SingleNode) -> str:
        """Return why a node cannot be compiled alone, in one line; "" if it can."""
        known = self._answers.get(node.digest)
        if known is None:
            self._note(_Answer(node.digest, _TRYING, os.getpid(), time.time()))
            try:
                compiled = self._answers.get(node.kind) == ""
                known = self._answers[node.digest] = _try(node, self._target, compiled=compiled)
                if not known and not compiled:
                    self._answers[node.kind] = ""
                    self._note(_Answer(node.kind, ""))
            finally:  # None if the test was interrupted
                self._note(_Answer(node.digest, known))
        return known

    def _note(self, answer: _Answer) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, "ab") as file:  # one write: lines of several processes do not mix
                file.write(msgspec.json.encode(answer) + b"\n")
        except OSError:
            pass  # the next run asks again


def _read(path: Path) -> dict[str, str]:
    found: dict[str, _Answer] = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return {}
    for line in lines:
        try:
            answer = msgspec.json.decode(line, type=_Answer)
        except UNREADABLE:
            continue  # an incomplete line of a process that was killed
        found[answer.node] = answer
    return {node: answer.why for node, answer in found.items() if answer.why is not None and answer.holds}


def _is_another_at_work(process: int) -> bool:
    if process in (0, os.getpid()):
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # the process belongs to another user
    return True


@functools.cache
def _version(target: str) -> str:
    """A digest of all that the answers depend on: the target, TVM's version, and Kintune's importer and compiler."""
    found = hashlib.sha256(f"{__version__} {tvm.__version__} {target}".encode())
    root = Path(__file__).parents[1]
    for package in ("compiler", "models", "partition"):
        for path in sorted((root / package).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _try(node: SingleNode, target: tvm.target.Target, *, compiled: bool) -> str:
    """Why a node cannot be compiled; it is imported and lowered alone if one of its kind was `compiled`."""
    proto = node.model.graph.node[0]
    opset = next((e.version for e in node.model.opset_import if e.domain in DEFAULT_DOMAINS), 0)
    model = OnnxModel(Path(proto.op_type), node.model, node.inputs, {}, node.digest, opset, {})
    reference = ModelRef(ONNX, proto.op_type, proto.op_type)
    outputs = [value.name for value in node.model.graph.output]
    try:
        imported = complete_model(
            reference, import_onnx(model), tuple(node.inputs), outputs, digest=node.digest, constants={}, opset=opset
        )
        lowered = lower(imported.module, target, conservative=True)
        if not compiled:
            assemble_plan(lowered, {}, target, inputs=imported.inputs, outputs=imported.outputs, checks=imported.checks)
    except UnsupportedOperators as error:
        return error.reasons.get(proto.op_type, f"operator {proto.op_type} has no compiled form")
    except KintuneError as error:
        return str(error).removeprefix(f"{proto.op_type}: ").removeprefix("None: ").splitlines()[0]
    except Exception as error:  # TVM raises exceptions of many types
        return cause_line(error)
    return ""
