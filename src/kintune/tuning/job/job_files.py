"""The files of a job whose process may run on another machine than the front."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from kintune.core.config import JobSpec
from kintune.core.stage_results import BOARD_FILE
from kintune.errors import KintuneError, StorageError
from kintune.files import sha256_of
from kintune.models.constants import located
from kintune.wire.staging import find, hand_over, place_of

__all__ = ["JobFiles"]


class JobFiles:
    """Maps the files of the front to the paths at which this process finds them.

    `spec` is the job's specification with these paths for the model, its constants and the user's inputs; results keep
    the names that they have at the front.
    """

    def __init__(self, asked: JobSpec) -> None:
        self._asked = asked
        model = asked.model
        constants = {name: located(constant, find) for name, constant in model.constants.items()}
        model = msgspec.structs.replace(model, source=find(model.source), constants=constants)
        inputs = tuple(find(path) for path in asked.input_files)
        calibration = tuple(find(path) for path in asked.calibration_files)
        self.spec = msgspec.structs.replace(asked, model=model, input_files=inputs, calibration_files=calibration)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The files with the user's inputs, as the front calls them."""
        return self._asked.input_files

    def named(self, path: str | None) -> str | None:
        """Returns the front's path of a file that this process reads: the model, or one that it has written."""
        if path == self.spec.model.source:
            return self._asked.model.source
        return None if path is None else self.named_beside(path, self._asked.output)

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Have errors name the model as the front does."""
        try:
            yield
        except KintuneError as error:
            here, there = self.spec.model.source, self._asked.model.source
            error.args = tuple(each.replace(here, there) if isinstance(each, str) else each for each in error.args)
            raise

    @staticmethod
    def named_beside(path: str, output: str) -> str:
        """Returns the front's path of a file, if this process has written it beside its place of the front's output."""
        named = os.path.join(os.path.dirname(output), os.path.basename(path))
        return named if place_of(named) == path else path

    @staticmethod
    def place_of(path: str) -> str:
        """Returns where this process writes a result that the front wants under this path."""
        return place_of(path)

    @staticmethod
    def digests(*paths: str | None) -> dict[str, str]:
        """The SHA-256 of the networks written under these paths, and of what they have for boards.

        It is empty for a file that is gone; None stands for one that was not written at all.

        Raises:
            StorageError: a file cannot be read.
        """
        found: dict[str, str] = {}
        for path in paths:
            if path is not None:
                found[path] = _digest(place_of(path))
                if board := _digest(place_of(f"{path}{BOARD_FILE}")):
                    found[f"{path}{BOARD_FILE}"] = board
        return found

    @staticmethod
    def hand_over(path: str) -> None:
        """Have a result copied to the front, if it was written.

        Raises:
            StorageError: it cannot be read again.
        """
        try:
            if os.path.exists(place_of(path)):
                hand_over(path)
        except OSError as error:
            raise StorageError(f"{os.path.basename(path)} cannot be handed over: {error.strerror}") from error


def _digest(path: str) -> str:
    """The SHA-256 of a file; empty if there is none."""
    try:
        with open(path, "rb") as file:
            return sha256_of(file).hex()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from error
