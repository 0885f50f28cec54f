"""The command `kintune` and the table of its commands."""

from __future__ import annotations

import click

import kintune
from kintune.cli.lazy import Entry, LazyGroup
from kintune.cli.plugins import with_plugins

__all__ = ["COMMANDS", "root"]

COMMANDS = {
    "tune": Entry("kintune.cli.tune", "Make a model fast on this machine."),
    "compile": Entry("kintune.cli.compile", "Compile a model in seconds, without measuring."),
    "run": Entry("kintune.cli.run", "Run a tuned model on inputs from a file."),
    "evaluate": Entry("kintune.cli.evaluate", "Time a tuned model."),
    "estimate": Entry("kintune.cli.estimate", "Say what tuning a model will take, before doing it."),
    "records": Entry("kintune.cli.records", "Look at, check, exchange and learn from what was measured."),
    "serve": Entry("kintune.cli.serve", "Tune models as a service.", extra="service"),
    "service": Entry("kintune.cli.service", "Look after a service on this machine.", extra="service"),
    "device": Entry("kintune.cli.device", "Lend this machine's devices to a service.", extra="fleet"),
    "worker": Entry("kintune.cli.worker", "Lend this machine's cores to a service.", extra="fleet"),
    "submit": Entry("kintune.cli.submit", "Have a service make a model fast.", extra="client"),
    "jobs": Entry("kintune.cli.jobs", "List your jobs at a service.", extra="client"),
    "job": Entry("kintune.cli.job", "Look at one job at a service, or change it.", extra="client"),
    "models": Entry("kintune.cli.models", "List the models of the zoo."),
    "doctor": Entry("kintune.cli.doctor", "Check that this machine can tune."),
}

root = LazyGroup(
    "kintune",
    COMMANDS,
    help="Makes deep-learning models fast on your hardware, by learning from the kinship between subgraphs.",
    extend=with_plugins,
    epilog="--json FILE is for machines.  Exit codes: 0 done, 1 failed, 2 wrong input, 130 interrupted.",
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            help="Show the version and exit.",
            callback=lambda ctx, _, wanted: _show_version(ctx) if wanted else None,
        )
    ],
)


def _show_version(ctx: click.Context) -> None:
    click.echo(f"kintune {kintune.__version__}")
    ctx.exit()
