"""`kintune compile`: an executable in seconds, from what is known."""

from __future__ import annotations

import click

from kintune import api
from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import constant_option, records_option, shape_option
from kintune.terminal.summary import summarize

__all__ = ["command"]


@click.command("compile", short_help="Compile a model in seconds, without measuring.")
@click.argument("model")
@shape_option
@constant_option
@click.option("--target", default="native", show_default=True, help="What to compile for; 'native' is this machine.")
@click.option("--device", default="cpu", show_default=True, help="What it will run on, as for 'kintune tune'.")
@click.option("--threads", type=int, help="Threads that the model will run on.  [default: all physical cores]")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the inputs that are drawn.")
@click.option("--input", "inputs", metavar="FILE.npz|DIR", help="Compare on these inputs.  [default: random ones]")
@click.option("--rtol", type=float, default=1e-3, show_default=True, help="Relative tolerance of outputs.")
@click.option("--atol", type=float, default=1e-3, show_default=True, help="Absolute tolerance of outputs.")
@records_option
@click.option("--output", metavar="FILE.kt", help="Where the executable goes.")
@click.option("--log", metavar="FILE", help="Where the details go.")
@click.option("--quiet", is_flag=True, help="Show no progress, only the summary.")
@json_option
def command(
    model: str,
    shapes: tuple[str, ...],
    constants: tuple[str, ...],
    target: str,
    device: str,
    threads: int | None,
    seed: int,
    inputs: str | None,
    rtol: float,
    atol: float,
    records: str | None,
    output: str | None,
    log: str | None,
    quiet: bool,
    json_target: JsonTarget,
) -> None:
    """Compile MODEL without measuring anything: an ONNX file, a PyTorch exported program (.pt2), or zoo:NAME.

    Each subgraph gets the fastest program that was ever measured for this device, else one by rule.  The result runs
    once and is compared with onnxruntime or PyTorch.  'kintune tune' begins with the same, and goes on from there.
    """
    result = api.Model.parse(model, shapes, constants).compile(
        target,
        device=device,
        threads=threads,
        seed=seed,
        inputs=inputs,
        rtol=rtol,
        atol=atol,
        records=records,
        output=output,
        log=log,
        progress=not quiet,
    )
    for line in summarize(result.report):
        echo(line, json_target)
    write_document(json_target, result.report)
