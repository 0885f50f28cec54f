"""The command `kintune` and the tables of its commands and groups."""

from __future__ import annotations

import click

import kintune
from kintune.cli.lazy import Entry, LazyGroup
from kintune.cli.plugins import with_plugins

__all__ = ["COMMANDS", "device", "job", "records", "root", "service", "worker"]

_RECORDS = {
    "list": Entry("kintune.cli.records", "List the runs.", "list_runs"),
    "show": Entry("kintune.cli.records", "Show one run.", "show_run"),
    "check": Entry("kintune.cli.records", "Look for damage, and remove it if told so.", "check"),
    "export": Entry("kintune.cli.records_exchange", "Write what was measured to a file.", "export"),
    "import": Entry("kintune.cli.records_exchange", "Add what a file holds.", "import_"),
    "pretrain": Entry("kintune.cli.records_pretrain", "Train family models from what was measured."),
}

_SERVICE = {
    "add-user": Entry("kintune.cli.service", "Add a user.", "add_user", "service"),
    "users": Entry("kintune.cli.service", "List the users.", "list_users", "service"),
    "lock": Entry("kintune.cli.service", "Lock a user out, or let them in again.", "lock", "service"),
    "add-token": Entry("kintune.cli.service", "Make a token, which is shown once.", "add_token", "service"),
    "tokens": Entry("kintune.cli.service", "List the tokens.", "list_tokens", "service"),
    "revoke": Entry("kintune.cli.service", "Revoke a token.", "revoke", "service"),
    "machines": Entry(
        "kintune.cli.service",
        "List the machines that have joined, and their devices' types.",
        "list_machines",
        "service",
    ),
    "forget-type": Entry(
        "kintune.cli.service", "Let the next device say what those of a type are.", "forget_type", "service"
    ),
    "backup": Entry("kintune.cli.service", "Write everything to one file.", "backup", "service"),
    "restore": Entry("kintune.cli.service", "Make a service out of a back-up.", "restore_", "service"),
}

_DEVICE = {"start": Entry("kintune.cli.agents", "Measure here what a service wants to know.", "start_device", "fleet")}

_WORKER = {"start": Entry("kintune.cli.agents", "Build here what a service wants to try.", "start_worker", "fleet")}

_JOB = {
    "show": Entry("kintune.cli.jobs", "Show where it stands, and how it came there.", "show", "client"),
    "watch": Entry("kintune.cli.jobs", "Show how it goes, until it is over.", "watch", "client"),
    "logs": Entry("kintune.cli.jobs", "What its processes have said.", "logs", "client"),
    "finish": Entry("kintune.cli.jobs", "End it with the best that was found so far.", "finish", "client"),
    "cancel": Entry("kintune.cli.jobs", "End it without a result.", "cancel", "client"),
    "priority": Entry("kintune.cli.jobs", "Give it another priority.", "priority", "client"),
    "retry": Entry("kintune.cli.jobs", "Go on with one that failed or was cancelled.", "retry", "client"),
    "download": Entry("kintune.cli.jobs", "Fetch the result.", "download", "client"),
}

_MODEL = "A model"
_DEPLOY = "A tuned model elsewhere"
_AT_SERVICE = "A service"
_MACHINE = "Records and this machine"

COMMANDS = {
    "tune": Entry("kintune.cli.tune", "Make a model fast on this machine.", section=_MODEL),
    "run": Entry("kintune.cli.run", "Run a tuned model on inputs from a file.", section=_MODEL),
    "evaluate": Entry("kintune.cli.evaluate", "Time a tuned model.", section=_MODEL),
    "profile": Entry("kintune.cli.profile", "Show where the time of a tuned model goes.", section=_MODEL),
    "report": Entry("kintune.cli.report", "Show what came of a run, also as a page.", section=_MODEL),
    "compile": Entry("kintune.cli.compile", "Compile a model in seconds, without measuring.", section=_MODEL),
    "estimate": Entry("kintune.cli.estimate", "Say what tuning a model will take, before doing it.", section=_MODEL),
    "export": Entry("kintune.cli.export", "Write a tuned model for programs without Kintune.", section=_DEPLOY),
    "merge": Entry("kintune.cli.merge", "Make one file of a model tuned on several machines.", section=_DEPLOY),
    "check": Entry("kintune.cli.check", "Fail if a tuned model is slower than onnxruntime.", section=_DEPLOY),
    "submit": Entry("kintune.cli.submit", "Have a service make a model fast.", extra="client", section=_AT_SERVICE),
    "jobs": Entry("kintune.cli.jobs", "List your jobs at a service.", "list_jobs", "client", section=_AT_SERVICE),
    "job": Entry("kintune.cli.root", "Look at one job at a service, or change it.", "job", section=_AT_SERVICE),
    "serve": Entry("kintune.cli.serve", "Tune models as a service.", extra="service", section=_AT_SERVICE),
    "service": Entry("kintune.cli.root", "Look after a service on this machine.", "service", section=_AT_SERVICE),
    "device": Entry("kintune.cli.root", "Lend this machine's devices to a service.", "device", section=_AT_SERVICE),
    "worker": Entry("kintune.cli.root", "Lend this machine's cores to a service.", "worker", section=_AT_SERVICE),
    "records": Entry(
        "kintune.cli.root", "Look at, check, exchange and learn from what was measured.", "records", section=_MACHINE
    ),
    "models": Entry("kintune.cli.models", "List the models of the zoo.", section=_MACHINE),
    "doctor": Entry("kintune.cli.doctor", "Check that this machine can tune.", section=_MACHINE),
    "completion": Entry("kintune.cli.completion", "Print the script for completion in a shell.", section=_MACHINE),
}


def _group(name: str, entries: dict[str, Entry]) -> LazyGroup:
    return LazyGroup(name, entries, help=COMMANDS[name].summary)


records = _group("records", _RECORDS)
service = _group("service", _SERVICE)
device = _group("device", _DEVICE)
worker = _group("worker", _WORKER)
job = _group("job", _JOB)

root = LazyGroup(
    "kintune",
    COMMANDS,
    help="Makes deep-learning models fast on your hardware, by learning from the kinship between subgraphs.",
    extend=with_plugins,
    context_settings={"help_option_names": ["-h", "--help"]},
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
