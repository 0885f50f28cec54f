"""`kintune merge`: one file of a model that was tuned on several machines."""

from __future__ import annotations

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.runtime.merging import merge
from kintune.runtime.package import Manifest
from kintune.terminal.formatting import count, counted

__all__ = ["MergeDocument", "VariantSummary", "command", "describe_variant"]


class VariantSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a file has for one kind of CPU: `cpu` is the name of the one that it was tuned on, empty if not known."""

    number: int
    machine: str
    cpu: str
    isa: tuple[str, ...]
    threads: int

    @classmethod
    def of(cls, number: int, manifest: Manifest) -> VariantSummary:
        """Returns the summary of a variant with this manifest."""
        return cls(
            number=number, machine=manifest.machine, cpu=manifest.cpu, isa=manifest.isa, threads=manifest.threads
        )


class MergeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune merge --json`; sizes are in bytes, `shared_nbytes` of weights are not stored again."""

    schema_version: int = 1
    output: str
    model: str
    variants: tuple[VariantSummary, ...]
    nbytes: int
    input_nbytes: tuple[int, ...]
    shared_nbytes: int


@click.command("merge", short_help="Merge files of one model, tuned on several machines.")
@click.argument("executables", metavar="A.kt B.kt...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE.kt", required=True, help="Where the merged file goes.")
@json_option
def command(executables: tuple[str, ...], output: str, json_target: JsonTarget) -> None:
    """Merge several files into one: the same model, tuned on different machines.

    The runtime picks what suits the CPU when it opens the file: what was tuned on a CPU of the same name, else what
    uses the most of its extensions, else the first. 'kintune evaluate' says what was picked.
    """
    merged = merge(executables, output)
    variants = tuple(VariantSummary.of(number, manifest) for number, manifest in enumerate(merged.variants))
    document = MergeDocument(
        output=str(merged.path),
        model=merged.variants[0].model_name,
        variants=variants,
        nbytes=merged.nbytes,
        input_nbytes=merged.input_nbytes,
        shared_nbytes=merged.shared_nbytes,
    )
    write_document(json_target, document)
    for variant in variants:
        echo(describe_variant(variant), json_target)
    size, before, shared = (count(n, "B") for n in (merged.nbytes, sum(merged.input_nbytes), merged.shared_nbytes))
    echo(f"The result is {merged.path}: {size} of {before}; {shared} of weights are stored once", json_target)


def describe_variant(variant: VariantSummary) -> str:
    """Describes a variant in one line."""
    cpu = f" ({variant.cpu})" if variant.cpu else ""
    threads = counted(variant.threads, "thread")
    return f"variant {variant.number}: {variant.machine}{cpu}, {threads}, {' '.join(variant.isa) or 'no extensions'}"
