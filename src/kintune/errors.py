"""Every error that Kintune raises on purpose.

    KintuneError                    root of all
    |-- InputError                  something from outside is wrong; nothing was changed (exit code 2)
    |   |-- ModelError              a model file or object cannot be used
    |   |   |-- UnsupportedOperators
    |   |   |-- UnsupportedValues   an input or output is no tensor of numbers
    |   |   `-- ShapeError          an input shape is missing, or contradicts the model
    |   |-- TargetError             an unknown target or device
    |   |-- RecordsError            a records file cannot be used
    |   |   `-- DamagedRecord
    |   |-- EnvironmentProblem      what is installed cannot work
    |   `-- OrderError              a call that needs another call before it
    |-- StorageError                records or results cannot be read or written now (exit code 2)
    |   `-- StorageFull             there is no space left
    |-- RunError                    a network cannot run now: no memory, a context in use, a kernel that fails
    |-- BuildError                  a program could not be compiled
    |-- DeviceError                 a device cannot be used
    |   `-- DeviceUnwell            a device or host whose results cannot be used for now
    |-- EngineError                 a process could not be started or kept running
    |-- SchedulerError              an event or a decision that the scheduler's state does not allow
    |-- WireError                   a peer sent something that is not a message
    |-- JobFailed                   a tuning job ended without a result
    |-- UncertainResult             a result was written, and not all of it could be compared, or a number is uncertain
    `-- NumericsError               a tuned program does not compute what the model computes

Messages say what happened, to which thing, with which value, and what to do next.  The command line prints them in one
line, and exits with code 1 where no other is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from kintune_runtime.errors import InputError, KintuneError, RunError

__all__ = [
    "BuildError",
    "DamagedRecord",
    "DeviceError",
    "DeviceUnwell",
    "EngineError",
    "EnvironmentProblem",
    "InputError",
    "JobFailed",
    "KintuneError",
    "ModelError",
    "NumericsError",
    "OrderError",
    "RecordsError",
    "RunError",
    "SchedulerError",
    "ShapeError",
    "StorageError",
    "StorageFull",
    "TargetError",
    "UncertainResult",
    "UnsupportedOperators",
    "UnsupportedValues",
    "WireError",
    "cause_line",
]

_CHECK = re.compile(r"Check failed: (?P<condition>.*) is false:(?P<text>.*)")
_SAYS_NOTHING = re.compile(r"^(#|\[\d\d:\d\d|Traceback|Offending call:?$|File \"|\^+$|Stack trace)")
_OPERATOR = re.compile(r"(?P<before>.{0,20}?)\bir\.Op\(")
_NAME = re.compile(r'name="(?P<name>[^"]*)"')
_LONGEST_CAUSE = 300  # characters


def cause_line(error: BaseException) -> str:
    """Return the first line of an error's text that says what went wrong, at most 300 characters.

    Lines that only dump or locate code are skipped: comments, source positions, parts of a stack trace.  Of a failed
    check of the compiler, its text is returned, or its condition if there is no text.  An error without any such line
    gives the name of its type.
    """
    for line in str(error).splitlines():
        text = line.strip()
        if not text or _SAYS_NOTHING.match(text):
            continue
        if (check := _CHECK.search(text)) is not None:
            text = check["text"].strip(" :") or f"the compiler's check {check['condition'].strip()} failed"
        return _without_dump(text)[:_LONGEST_CAUSE]
    return type(error).__name__


def _without_dump(text: str) -> str:
    """Return the text with a dump `ir.Op(...)` that begins in its first 20 characters replaced by its name."""
    begun = _OPERATOR.match(text)
    if begun is None:
        return text
    depth, quoted = 1, False
    for at in range(begun.end(), len(text)):
        character = text[at]
        quoted ^= character == '"'
        if not quoted:
            depth += (character == "(") - (character == ")")
        if not depth:
            dump = text[begun.end() : at]
            name = _NAME.search(dump)
            return f"{begun['before']}{name['name'] if name else 'an operator'}{text[at + 1 :]}"
    return text


class ModelError(InputError):
    """A model file or object cannot be used."""


class UnsupportedOperators(ModelError):
    """The model uses operators that cannot be imported; `counts` maps each name to how often it occurs.

    `reasons` has, by name, why an operator that is compiled in other forms is not compiled in this one.
    """

    def __init__(self, model: str, counts: dict[str, int], reasons: Mapping[str, str] = {}) -> None:
        self.counts = dict(counts)
        self.reasons = {name: why for name, why in reasons.items() if name in counts}
        spelled = {name: f" ({why})" for name, why in self.reasons.items()}
        listed = ", ".join(f"{name} x{n}{spelled.get(name, '')}" for name, n in sorted(self.counts.items()))
        super().__init__(
            f"{model}: operators that cannot be imported: {listed}; replace them before exporting the model"
        )


class UnsupportedValues(ModelError):
    """An input or output is no tensor of numbers: only onnxruntime can run the model, if anything can."""


class ShapeError(ModelError):
    """An input shape is missing, or contradicts the model."""


class TargetError(InputError):
    """An unknown target or device."""


class RecordsError(InputError):
    """A records file cannot be used: not a database, damaged, or written by a newer version."""


class DamagedRecord(RecordsError):
    """One record is not what was once written: `table` and `id` name it, `problem` says what is wrong with it."""

    def __init__(self, table: str, id: str, problem: str) -> None:
        self.table = table
        self.id = id
        self.problem = problem
        super().__init__(f"records: {table} {id}: {problem}; `kintune records check` lists all damage")


class StorageError(KintuneError):
    """Records or results could not be read or written now; nothing was changed, and the same call may be made again."""


class StorageFull(StorageError):
    """There is no space left to write; nothing was changed, and the same call works once there is."""


class EnvironmentProblem(InputError):
    """What is installed cannot work; the message says what to install."""


class OrderError(InputError):
    """A call that makes no sense yet; the message says what to do first."""


class BuildError(KintuneError):
    """A program could not be compiled.

    Of a network, `at_fault` are the digests of the workloads whose programs the compiler refuses, where that is known.
    """

    def __init__(self, message: str, at_fault: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.at_fault = frozenset(at_fault)


class DeviceError(KintuneError):
    """A device cannot be used."""


class DeviceUnwell(DeviceError):
    """A device or a host does not work as it should: what it measures or builds cannot be used for now."""


class EngineError(KintuneError):
    """A process of ours could not be started or kept running."""


class SchedulerError(KintuneError):
    """An event or a decision that the scheduler's state does not allow."""


class WireError(KintuneError):
    """A peer sent something that is not a message of ours."""


class JobFailed(KintuneError):
    """A tuning job ended without a result; the message counts the failures by cause."""


class UncertainResult(KintuneError):
    """A result was written that `strict` does not accept; `doubts` has a line on each reason."""

    def __init__(self, what: str, doubts: Sequence[str]) -> None:
        self.doubts = tuple(doubts)
        super().__init__(f"{what}, which strict does not accept: {'; '.join(self.doubts)}")


class NumericsError(KintuneError):
    """A tuned program does not compute what the model computes."""
