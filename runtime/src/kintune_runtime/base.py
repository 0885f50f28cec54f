"""The common part of all kinds of executables: their inputs and outputs, and how they are timed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import numpy.typing as npt

from .copying import NotCopied
from .errors import InputError
from .evaluation import Evaluation, KernelTime, Runs, evaluate_streams, timed
from .inputs import Array, Tensor, choose_plan, draw_inputs

__all__ = ["BaseExecutable", "Inputs"]

Inputs: TypeAlias = "Mapping[str, npt.ArrayLike] | npt.ArrayLike"

_Self = TypeVar("_Self", bound="BaseExecutable")


class BaseExecutable(NotCopied):
    """An opened `.kt` file: a network ready to run on this machine's CPU."""

    _plans: list[tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs in order, with the shapes of the first plan: arrays for `run` have these shapes and types."""
        return self._plans[0][0]

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The outputs in order, with the shapes of the first plan."""
        return self._plans[0][1]

    @property
    def plans(self) -> tuple[tuple[Tensor, ...], ...]:
        """The inputs of each combination of shapes that can be run."""
        return tuple(inputs for inputs, _ in self._plans)

    @property
    def description(self) -> dict[str, Any]:
        """The file's `manifest.json`: the model's name, versions, and what its inputs stand for."""
        raise NotImplementedError

    def __repr__(self) -> str:
        inputs = ", ".join(f"{t.name}: {t.dtype}{list(t.shape)}" for t in self.inputs)
        return f"Executable({inputs})"

    def run(self, *inputs: Inputs, threads: int = 0) -> dict[str, Array]:
        """Run once: arrays by input name, or one positional array an input; their shapes choose the plan.

        The outputs are arrays by name that belong to the caller.  `threads` bounds the threads of this run; 0 means as
        many as the network was tuned for, but no more than cores.

        Raises:
            InputError: an input is missing, unknown, or of another dtype or shape than the model's, or the model was
                not tuned for these shapes; an index, given or computed, is outside of what it indexes; the executable
                is closed.
            RunError: no memory or no thread is left, or a node failed.
        """
        raise NotImplementedError

    def context(self, threads: int = 0, plan: int = 0) -> Runs:
        """Make a context, which one thread at a time may run while others run theirs.

        `threads` bounds those of its runs, up to 4096; 0 means as many as the network was tuned for.  `plan` is a place
        in `plans`.

        Raises:
            InputError: there is no such plan, or no such number of threads; the executable is closed.
            RunError: no memory or no thread is left.
        """
        raise NotImplementedError

    def profile(self, *inputs: Inputs, seed: int = 0, threads: int = 0) -> list[KernelTime]:
        """Run once, and return the time of each kernel in microseconds, in the order of their calls.

        Without inputs they are drawn from `seed`; `threads` is as for `run`.

        Raises:
            InputError: as for `run`.
            RunError: as for `run`.
        """
        raise NotImplementedError

    def profiles(self, *inputs: Inputs, repeats: int = 50, seed: int = 0, threads: int = 0) -> list[list[KernelTime]]:
        """Run `repeats` times, each as `profile` does.

        Raises:
            InputError: as for `run`.
            RunError: as for `run`.
        """
        return [self.profile(*inputs, seed=seed, threads=threads) for _ in range(repeats)]

    def close(self) -> None:
        """Free everything.  Closing twice is fine."""
        raise NotImplementedError

    def evaluate(
        self, *inputs: Inputs, repeats: int = 50, warmups: int = 3, max_seconds: float = 10.0, seed: int = 0,
        threads: int = 0, streams: int = 1,
    ) -> Evaluation:  # fmt: skip
        """Time `run`, arrays in to arrays out: `warmups` untimed runs, then `repeats` timed ones for each stream.

        Latencies are in milliseconds.  Ends early once `max_seconds` have passed, after at least one timed run.
        Without inputs they are drawn from `seed`.  Each of `streams` is a Python thread with a context of its own;
        `threads` bounds those of one run.

        Raises:
            InputError: as for `run`, or there is no repeat or stream, or warmups are negative.
            RunError: as for `run`.
        """
        if repeats < 1 or warmups < 0 or streams < 1:
            raise InputError(
                f"evaluate needs at least 1 repeat and 1 stream and no negative warmups, got {repeats}, {streams} and"
                f" {warmups}"
            )
        given: tuple[Any, ...] = inputs or (draw_inputs(self.described_inputs(), seed),)
        if streams == 1:
            begun = time.perf_counter()
            times = timed(lambda: self.run(*given, threads=threads), repeats, warmups, begun + max_seconds)
            return Evaluation.of(times, sum(times) / 1e3)
        plan = self._plan_for(given)
        contexts = [self.context(threads, plan) for _ in range(streams)]
        return evaluate_streams(contexts, given, repeats, warmups, max_seconds)

    def described_inputs(self, plan: int = 0) -> tuple[Tensor, ...]:
        """The inputs of a plan, a place in `plans`, with what the manifest says of their values."""
        tensors, about = self.plans[plan], self.description.get("executable", {})
        combinations = [about.get("inputs", ()), *(each.get("inputs", ()) for each in about.get("more", ()))]
        shapes = [list(tensor.shape) for tensor in tensors]
        fitting = (each for each in combinations if [list(one.get("shape", ())) for one in each] == shapes)
        told = {each.get("name"): each for each in next(fitting, combinations[0])}
        described = []
        for tensor in tensors:
            more = told.get(tensor.name, {})
            bounds = more.get("bounds")
            described.append(
                tensor._replace(
                    bounds=tuple(bounds) if bounds else None,
                    values=more.get("values", ""),
                    below=more.get("below", 0),
                    choices=tuple(more.get("choices", ())),
                )
            )
        return tuple(described)

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _plan_for(self, inputs: tuple[Inputs, ...]) -> int:
        """The plan of these inputs' shapes."""
        return 0 if len(self._plans) < 2 else choose_plan(self.plans, inputs)
