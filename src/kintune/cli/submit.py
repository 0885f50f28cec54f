"""`kintune submit`: have a service make a model fast."""

from __future__ import annotations

from typing import Any

import click

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import config_options, constant_option, shape_option
from kintune.cli.remote import CommandClient, JobDisplay, JobDocument, outliving, service_options
from kintune.cli.sections import TUNE_SECTIONS, SectionedCommand
from kintune.core.constraints import fields_of
from kintune.core.narrow_options import check_narrow_options
from kintune.core.report import doubts_of
from kintune.errors import InputError, UncertainResult
from kintune.files import check_writable, readable_files
from kintune.models.combinations import parse_shapes, plain_shape
from kintune.models.constants import constant_values, parse_constants
from kintune.service.job_request import JobRequest, check
from kintune.terminal.table import printable

__all__ = ["command"]

_FIELDS = fields_of(JobRequest)


@click.command("submit", cls=SectionedCommand, sections=TUNE_SECTIONS, short_help="Submit a model to a tuning service.")
@click.argument("model", metavar="MODEL.onnx")
@service_options
@shape_option
@constant_option
@config_options(
    [name for name in _FIELDS if name not in ("shapes", "constants")],
    JobRequest,
    help={
        "calibrate": "With precision int8 or auto: upload these inputs, and quantise the model with ranges found on "
        "them.",
        "inputs": "Upload these inputs, and compare the outputs on them.  [default: random ones]",
    },
)
@click.option("--wait", is_flag=True, help="Wait until the job ends, and show its progress.")
@config_options(
    ["strict"],
    help={"strict": "With --wait or --output: fail if an output was not compared or a number is uncertain."},
)
@click.option("-o", "--output", metavar="FILE.kt", help="Wait for the result and download it to this file.")
@json_option
def command(
    model: str,
    token: str | None,
    service: str | None,
    shapes: tuple[str, ...],
    constants: tuple[str, ...],
    calibrate: str | None,
    inputs: str | None,
    wait: bool,
    strict: bool,
    output: str | None,
    json_target: JsonTarget,
    **options: Any,
) -> None:
    """Submit MODEL.onnx to a service for tuning; prints the job's id."""
    if model.startswith("zoo:"):
        raise InputError(f"{model}: a service takes ONNX files, and no networks of the zoo; name a file")
    if strict and not (wait or output):
        raise InputError("--strict judges the result of the job: give --wait or --output FILE.kt as well")
    if output is not None:
        check_writable(output, "--output")
    bound = parse_shapes(shapes)
    wanted = {name: value for name, value in options.items() if value != _FIELDS[name].default}
    if bound:
        wanted["shapes"] = {name: plain_shape(of) for name, of in bound.items()}
    if constants:
        wanted["constants"] = {name: constant_values(one).tolist() for name, one in parse_constants(constants).items()}
    check_narrow_options(
        options["precision"],
        weights=options["weights"],
        max_error=options["max_error"],
        calibrated=calibrate is not None,
        dashes="--",
        how_to_calibrate="give --calibrate FILE.npz or a directory of such files",
    )
    sets = {"calibrate": (calibrate, "the calibration files"), "inputs": (inputs, "the inputs")}
    numbers: dict[str, Any] = {
        name: tuple(range(len(readable_files(path, ".npz", what))))
        for name, (path, what) in sets.items()
        if path is not None
    }
    check(JobRequest(**wanted, **numbers))  # so that what makes no sense is not uploaded
    with CommandClient(service, token) as client:
        stored = client.upload(model)
        for name, (path, _) in sets.items():
            if path is not None:  # files with the same content are one upload
                wanted[name] = list(dict.fromkeys(one["id"] for one in client.upload_inputs(path, stored["id"])))
        job = client.submit(stored["id"], **wanted)
        echo(job["id"], json_target)
        try:
            if wait or output:
                with outliving(job["id"], _say), JobDisplay(f"{stored['name']}, job {job['id']}", _say) as news:
                    client.wait(job["id"], news)
            if output:
                client.download(job["id"], output)
                click.echo(f"The executable is {output}", err=True)
        finally:
            if json_target:
                write_document(json_target, JobDocument(job=client.job(job["id"])))
        if strict and (doubts := doubts_of(client.report(job["id"]))):
            raise UncertainResult(f"job {job['id']} has a result", doubts)


def _say(line: str) -> None:
    click.echo(printable(line), err=True)
