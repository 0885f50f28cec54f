"""`kintune tune`: make a model fast on this machine."""

from __future__ import annotations

import click

from kintune import api
from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import records_option, shape_option
from kintune.terminal.summary import summarize

__all__ = ["command"]


@click.command("tune", short_help="Make a model fast on this machine.")
@click.argument("model")
@shape_option
@click.option("--target", default="native", show_default=True, help="What to tune for; 'native' is this machine.")
@click.option("--threads", type=int, help="Threads that the model will run on.  [default: all physical cores]")
@click.option("--trials", type=int, help="Stop after measuring this many programs.  [default: 1000 if no other limit]")
@click.option("--minutes", type=float, help="Stop after this long.")
@click.option("--until-ms", type=float, help="Stop once the model is estimated to take at most this long.")
@click.option(
    "--families", default="op", show_default=True, help="Which subgraphs learn together: op, hash, measured, ind, none."
)
@click.option(
    "--foresee", default="guarded", show_default=True, help="Short rounds for siblings: guarded, published or none."
)
@click.option("--no-carry", is_flag=True, help="Do not try a subgraph's good programs on its siblings.")
@click.option("--no-kin", is_flag=True, help="Do not start from what other networks' subgraphs have taught.")
@click.option("--round-size", type=int, help="Programs of a full round.  [default: 64]")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything drawn at random.")
@click.option("--input", "inputs", metavar="FILE.npz", help="Compare outputs on these inputs.  [default: random ones]")
@click.option("--rtol", type=float, default=1e-3, show_default=True, help="Relative tolerance of outputs.")
@click.option("--atol", type=float, default=1e-3, show_default=True, help="Absolute tolerance of outputs.")
@records_option
@click.option("--output", metavar="FILE.kt", help="Where the executable goes.  [default: MODEL.kt here]")
@click.option("--fresh", is_flag=True, help="Neither go on with an unfinished run nor reuse what was measured.")
@click.option("--log", metavar="FILE", help="Where the details go.")
@click.option("--quiet", is_flag=True, help="Show no progress, only the summary.")
@json_option
def command(
    model: str,
    shapes: tuple[str, ...],
    target: str,
    threads: int | None,
    trials: int | None,
    minutes: float | None,
    until_ms: float | None,
    families: str,
    foresee: str,
    no_carry: bool,
    no_kin: bool,
    round_size: int | None,
    seed: int,
    inputs: str | None,
    rtol: float,
    atol: float,
    records: str | None,
    output: str | None,
    fresh: bool,
    log: str | None,
    quiet: bool,
    json_target: JsonTarget,
) -> None:
    """Make MODEL fast on this machine: an ONNX file, a PyTorch exported program (.pt2), or zoo:NAME.

    The result is one file, which 'kintune run' and kintune.open() run anywhere on the same kind of CPU.  Ctrl-C ends
    the search and keeps what was found.  The same command again goes on from what is known.
    """
    result = api.Model.parse(model, shapes).tune(
        target,
        threads=threads,
        trials=trials,
        minutes=minutes,
        until_ms=until_ms,
        families=families,
        foresee=foresee,
        carry=not no_carry,
        kin=not no_kin,
        round_size=round_size,
        seed=seed,
        inputs=inputs,
        rtol=rtol,
        atol=atol,
        records=records,
        output=output,
        fresh=fresh,
        log=log,
        progress=not quiet,
    )
    write_document(json_target, result.report)
    for line in summarize(result.report):
        echo(line, json_target)
