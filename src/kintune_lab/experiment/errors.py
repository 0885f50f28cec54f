"""What can be wrong with an option of a cell."""

from __future__ import annotations

from kintune.errors import InputError

__all__ = ["OptionError"]


class OptionError(InputError):
    """A cell's option cannot be what it is; `method` is the label of the method that it belongs to, if it is one's."""

    def __init__(self, option: str, problem: str, method: str = "") -> None:
        self.option = option
        self.problem = problem
        self.method = method
        super().__init__(f"{option} {problem}")
