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
    "check": Entry("kintune.cli.records", "Check the records for damage; remove it on request.", "check"),
    "export": Entry("kintune.cli.records_exchange", "Write measurements to a file.", "export"),
    "import": Entry("kintune.cli.records_exchange", "Add the measurements in a file.", "import_"),
    "pretrain": Entry("kintune.cli.records_pretrain", "Train the cost models of families from measurements."),
    "upgrade": Entry("kintune.cli.records_upgrade", "Convert measurements of earlier programs."),
}

_SERVICE = {
    "add-user": Entry("kintune.cli.service", "Add a user.", "add_user", "service"),
    "change-user": Entry("kintune.cli.service", "Change the quotas of a user.", "change_user", "service"),
    "users": Entry("kintune.cli.service", "List the users.", "list_users", "service"),
    "lock": Entry("kintune.cli.service", "Lock a user out, or let them in again.", "lock", "service"),
    "add-token": Entry("kintune.cli.service", "Create a token, which is shown once.", "add_token", "service"),
    "tokens": Entry("kintune.cli.service", "List the tokens.", "list_tokens", "service"),
    "revoke": Entry("kintune.cli.service", "Revoke a token.", "revoke", "service"),
    "machines": Entry(
        "kintune.cli.service",
        "List the machines that have joined, and their devices' types.",
        "list_machines",
        "service",
    ),
    "audit": Entry("kintune.cli.service", "List who did what, newest first.", "list_audit", "service"),
    "forget-type": Entry("kintune.cli.service", "Forget the description of a device type.", "forget_type", "service"),
    "backup": Entry("kintune.cli.service", "Write all data of the service to one file.", "backup", "service"),
    "restore": Entry("kintune.cli.service", "Restore a service from a back-up.", "restore_", "service"),
}

_DEVICE = {"start": Entry("kintune.cli.agents", "Measure programs here for a service.", "start_device", "fleet")}

_WORKER = {"start": Entry("kintune.cli.agents", "Build programs here for a service.", "start_worker", "fleet")}

_JOB = {
    "show": Entry("kintune.cli.jobs", "Show the state and the history of a job.", "show", "client"),
    "watch": Entry("kintune.cli.jobs", "Show the progress of a job until it ends.", "watch", "client"),
    "logs": Entry("kintune.cli.jobs", "Print the log of a job.", "logs", "client"),
    "report": Entry("kintune.cli.jobs", "Show the report of a job, also as an HTML page.", "report", "client"),
    "finish": Entry("kintune.cli.jobs", "End the search; keep the best result so far.", "finish", "client"),
    "cancel": Entry("kintune.cli.jobs", "Cancel a job; it has no result.", "cancel", "client"),
    "priority": Entry("kintune.cli.jobs", "Change the priority of a job.", "priority", "client"),
    "retry": Entry("kintune.cli.jobs", "Retry a failed or cancelled job.", "retry", "client"),
    "download": Entry("kintune.cli.jobs", "Download the result of a job.", "download", "client"),
    "delete-files": Entry("kintune.cli.jobs", "Delete the executables and the logs of jobs.", "delete_files", "client"),
}

_MODEL = "A model"
_DEPLOY = "Deployment"
_AT_SERVICE = "A service"
_MACHINE = "Records and this machine"

COMMANDS = {
    "tune": Entry("kintune.cli.tune", "Make a model fast on this machine.", section=_MODEL),
    "run": Entry("kintune.cli.run", "Run a tuned model on inputs from a file.", section=_MODEL),
    "evaluate": Entry("kintune.cli.evaluate", "Time a tuned model.", section=_MODEL),
    "profile": Entry("kintune.cli.profile", "Show where the time of a tuned model goes.", section=_MODEL),
    "report": Entry("kintune.cli.report", "Show the report of a run, also as an HTML page.", section=_MODEL),
    "compile": Entry("kintune.cli.compile", "Compile a model in seconds, without measuring.", section=_MODEL),
    "estimate": Entry("kintune.cli.estimate", "Estimate the time and the gain of tuning a model.", section=_MODEL),
    "export": Entry("kintune.cli.export", "Write a tuned model for programs without Kintune.", section=_DEPLOY),
    "merge": Entry("kintune.cli.merge", "Merge files of one model, tuned on several machines.", section=_DEPLOY),
    "sign": Entry("kintune.cli.sign", "Sign results or wheels.", "sign", section=_DEPLOY),
    "verify": Entry("kintune.cli.sign", "Verify the signatures of results or wheels.", "verify", section=_DEPLOY),
    "check": Entry("kintune.cli.check", "Fail if a tuned model is slower than onnxruntime, or wrong.", section=_DEPLOY),
    "submit": Entry("kintune.cli.submit", "Submit a model to a tuning service.", extra="client", section=_AT_SERVICE),
    "jobs": Entry("kintune.cli.jobs", "List your jobs at a service.", "list_jobs", "client", section=_AT_SERVICE),
    "job": Entry("kintune.cli.root", "Show or control one job at a service.", "job", section=_AT_SERVICE),
    "uploads": Entry(
        "kintune.cli.uploads", "List or delete your uploads at a service.", extra="client", section=_AT_SERVICE
    ),
    "serve": Entry("kintune.cli.serve", "Run a service that tunes models.", extra="service", section=_AT_SERVICE),
    "service": Entry("kintune.cli.root", "Administer a service on this machine.", "service", section=_AT_SERVICE),
    "device": Entry("kintune.cli.root", "Let a service use this machine's devices.", "device", section=_AT_SERVICE),
    "worker": Entry("kintune.cli.root", "Let a service use this machine's cores.", "worker", section=_AT_SERVICE),
    "records": Entry(
        "kintune.cli.root", "List, check and exchange measurements; pretrain models.", "records", section=_MACHINE
    ),
    "models": Entry("kintune.cli.models", "List the models of the zoo.", section=_MACHINE),
    "doctor": Entry("kintune.cli.doctor", "Check that this machine can tune.", section=_MACHINE),
    "completion": Entry("kintune.cli.completion", "Print the shell completion script.", section=_MACHINE),
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
    help="Tunes deep-learning models for your hardware; similar subgraphs share a learned cost model.",
    extend=with_plugins,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="--json FILE is for programs.  Exit codes: 0 done, 1 failed, 2 wrong input, 130 interrupted.",
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
