"""Opens an executable of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from kintune.errors import InputError
from kintune.runtime.executable import Executable
from kintune.runtime.opened_file import OpenedFile
from kintune.runtime.package import read_manifests
from kintune_runtime.signature import Key
from kintune_runtime.source import Source

if TYPE_CHECKING:
    from kintune.runtime.hybrid_executable import HybridExecutable
    from kintune.runtime.vm_executable import VmExecutable

__all__ = ["AnyExecutable", "open"]

AnyExecutable: TypeAlias = "Executable | HybridExecutable | VmExecutable"
"""One for CPUs, which needs no compiler, one that runs partly in onnxruntime, or one for GPUs."""


def open(
    source: Source, variant: int | None = None, *, private: bool = False, trusted: Key | None = None
) -> AnyExecutable:
    """Open a saved executable, for this machine's CPU or its first GPU: a file, or the contents of one.

    `source` is a path, bytes, or a file object.  It holds machine code that will run with your rights: open only what
    you trust.  TVM is imported for a GPU only, and onnxruntime for what runs partly in it.  Of a file for several CPUs,
    the variant that suits this one best is taken, or the one of number `variant`.

    The file at a path is mapped.  It may be renamed, deleted or replaced by renaming; if it is overwritten or cut in
    place, runs raise `InputError` from then on.  With `private` it is copied into memory, and not needed afterwards.

    With `trusted`, it must be signed by `kintune sign`: a public key of Ed25519, as the path or the content of a PEM
    file, or as 32 bytes.  It is copied, and what was checked is what is loaded.  This needs the package `cryptography`.

    Raises:
        InputError: the file is missing, damaged or no Kintune executable, or made for another format, CPU or GPU, or
            there is no such variant; it is not signed with the trusted key, or was altered since then; it runs partly
            in onnxruntime, which is missing, too old, or cannot load Kintune's operators.
        RunError: no memory is left.
    """
    file = OpenedFile(source, private, trusted)
    manifest = read_manifests(file.path, file.place)[0]
    if manifest.hybrid is not None:
        from kintune.runtime.hybrid_executable import HybridExecutable

        return HybridExecutable.open(file, variant)
    if manifest.capabilities.plans:
        return Executable.open(file, variant)
    if variant:
        raise InputError(
            f"{file.path}: there is no variant {variant}: a file for {manifest.capabilities.a_device} has one"
        )
    from kintune.runtime.vm_executable import VmExecutable

    return VmExecutable.open(file)
