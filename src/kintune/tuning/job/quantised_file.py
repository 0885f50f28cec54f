"""The quantised model of a job, in a file beside its output that a later process of the same job uses again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from kintune.core.candidate import digest_of
from kintune.core.config import JobSpec
from kintune.core.model import ModelRef
from kintune.core.quantisation import Quantised
from kintune.core.stage_results import QUANTISED_DATA, QUANTISED_FILE
from kintune.files import sha256_of, write_whole
from kintune.models.constants import describe_constants
from kintune.models.digest import onnx_digest
from kintune.models.graph_file import open_graph
from kintune.models.ref import ONNX
from kintune.wire.channel import UNREADABLE

__all__ = ["QuantisedModel", "quantised_once"]

_JSON = ".json"


class QuantisedModel(NamedTuple):
    """What is to be tuned in place of the user's model: `ref`, the file `path`, and what became of its layers."""

    ref: ModelRef
    path: str
    quantised: Quantised


def quantised_once(
    spec: JobSpec, path: Path, inputs: Sequence[str], options: object, write: Callable[[Path], Quantised]
) -> QuantisedModel:
    """Return the job's model at `path`, quantised by `write`, unless an earlier process has done so.

    What it becomes follows from the model, the files `inputs` and the `options`.  Where no layer is quantised, the
    model stays as it is, and `int8` of what is returned is 0.

    Raises:
        ModelError: the model cannot be read, or weights that it keeps in other files cannot.
    """
    written, key = Path(f"{spec.output}{QUANTISED_FILE}"), _key(spec, path, inputs, options)
    quantised = _written_before(written, key)
    if quantised is None:
        quantised = _write(written, key, write)
    if not quantised.int8:
        return QuantisedModel(spec.model, str(path), quantised)
    ref = msgspec.structs.replace(spec.model, kind=ONNX, source=str(written), options={}, own=True)
    return QuantisedModel(ref, str(written), quantised)


def _write(written: Path, key: str, write: Callable[[Path], Quantised]) -> Quantised:
    """Write the model, and then what it was made from: a process that is killed leaves no file that looks like another.

    Large weights lie in another file, which the model names, so both are written elsewhere under their own names.
    """
    note = Path(f"{written}{_JSON}")
    note.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="kintune-quantised-", dir=written.parent) as directory:
        quantised = write(Path(directory, written.name))
        for name in (f"{written.name}{QUANTISED_DATA}", written.name):
            if (made := Path(directory, name)).exists():
                os.replace(made, written.with_name(name))
            else:
                written.with_name(name).unlink(missing_ok=True)
    write_whole(note, msgspec.json.encode((key, quantised)))
    return quantised


def _written_before(written: Path, key: str) -> Quantised | None:
    """Returns what an earlier process has written for the same key; None if there is nothing."""
    try:
        found, quantised = msgspec.json.decode(Path(f"{written}{_JSON}").read_bytes(), type=tuple[str, Quantised])
    except (OSError, *UNREADABLE):
        return None
    return quantised if found == key and (written.exists() or not quantised.int8) else None


def _key(spec: JobSpec, path: Path, inputs: Sequence[str], options: object) -> str:
    """Returns a digest of all that the quantised model depends on; weights may lie in other files than the model."""
    digests = [onnx_digest(open_graph(path, own=spec.model.reads_other_files), {})]
    for file in (str(path), *inputs):
        with Path(file).open("rb") as opened:
            digests.append(sha256_of(opened).hex())
    shapes = [sorted(each.items()) for each in spec.model.combinations]
    return digest_of(msgspec.msgpack.encode((digests, shapes, describe_constants(spec.model.constants), options)))
