"""A result that runs partly in onnxruntime; `kintune.runtime.hybrid_package` has its file.

This module does not import TVM; onnxruntime is imported when it runs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kintune_runtime
from kintune.core.hybrid import Hybrid
from kintune.core.model import Tensor
from kintune.errors import InputError, OrderError
from kintune.runtime.hybrid_package import hybrid_in_memory
from kintune.runtime.manifest import Manifest, read_manifests
from kintune.runtime.opened_file import OpenedFile
from kintune.runtime.requirements import why_not_here
from kintune_runtime.source import Source

__all__ = ["HybridExecutable"]


class HybridExecutable(kintune_runtime.HybridExecutable):
    """A network ready to run on this machine, or to be saved and run on another one.

    Made by `create` or `open`.  An instance may be shared between threads, which run it at once.  `variants` has its
    one manifest, as an `Executable` has those of several.
    """

    def __init__(self, source: Source | OpenedFile, variant: int | None = None) -> None:
        """Open a file.

        Raises:
            InputError: as for `open`.
        """
        self._file = OpenedFile.of(source)
        path = self._file.path
        self.variants = read_manifests(path, self._file.place)[:1]
        self.manifest: Manifest = self.variants[0]
        if self.manifest.hybrid is None:
            raise InputError(f"{path}: does not run in onnxruntime; `kintune.open` opens it")
        super().__init__(self._file.place, variant, str(path))

    @classmethod
    def create(cls, manifest: Manifest, graph: bytes, regions: Sequence[Path | bytes]) -> HybridExecutable:
        """Make one of the host graph, and the files of its regions or their contents (see `write_hybrid`).

        One for machines of another kind can be saved here, but not run.

        Raises:
            InputError: as for `write_hybrid`, or onnxruntime refuses the graph; it is missing, too old, or cannot load
                Kintune's operators.
            OrderError: as for `write_hybrid`.
        """
        descriptor = hybrid_in_memory(manifest, graph, regions)
        try:
            return cls(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)

    @classmethod
    def open(cls, source: Source | OpenedFile, variant: int | None = None) -> HybridExecutable:
        """Open a saved one, by its path, or its contents.

        It holds machine code that will run with your rights: open only what you trust.

        Raises:
            InputError: the file is missing, damaged or none that runs in onnxruntime, or made for another format or
                CPU, or onnxruntime refuses its graph, or `variant` is not 0; onnxruntime is missing, too old, or cannot
                load Kintune's operators.
        """
        opened = cls(source, variant)
        if (why := opened._why_not_here()) is not None:
            raise InputError(f"{opened._file.path}: {why}")
        return opened

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one file, whole or not at all.

        Raises:
            InputError: there is something that is no file.
            StorageError: it cannot be written there.
        """
        self._file.save(path)

    @property
    def hybrid(self) -> Hybrid:
        """What runs where."""
        hybrid = self.manifest.hybrid
        if hybrid is None:
            raise OrderError(f"{self.manifest.model_name} does not run in onnxruntime")
        return hybrid

    @property
    def inputs(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The inputs in order."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The outputs in order."""
        return self.manifest.outputs

    def described_inputs(self, plan: int = 0) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The inputs of a combination of shapes, with what is known of their values."""
        return self.manifest.combinations[plan].inputs

    def __repr__(self) -> str:
        inputs = ", ".join(f"{t.name}: {t.dtype}{list(t.shape)}" for t in self.inputs)
        return f"HybridExecutable({self.manifest.model_name!r}, {inputs})"

    def _why_not_here(self) -> str | None:
        """Why this machine cannot run its regions; None where it can, or there are none."""
        return why_not_here(self.manifest) if self.hybrid.regions else None

    def _load(self) -> None:
        """Make the first session, where this machine can run it."""
        if self._why_not_here() is None:
            super()._load()

    def _make_session(self, threads: int, profile: bool = False) -> Any:
        if (why := self._why_not_here()) is not None:
            raise OrderError(f"{self.manifest.model_name} is {why}, or save it and run it there")
        return super()._make_session(threads, profile)
