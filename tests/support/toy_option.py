"""Every face of Kintune with a toy option, which is added to the text of one file before anything is imported.

    python -m tests.support.toy_option

writes a JSON document of what each face says of it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

TOY = """    toys: Annotated[int, option(
        "Number of toys.", Section.CHECKS, ge=1, le=9, label="Toys at hand", hint="Nine at most", see="cli.md#toys",
        told="{} toys at hand",
    )] = 1
    soft: Annotated[bool, option("Be soft.", Section.PLACEMENT, off="Be hard.")] = True
    loud: Annotated[bool, option("Be loud.", Section.BUDGET, told="it is loud")] = False
    size: Annotated[float, option("Size.", Section.CHECKS, gt=0, without="as large as it gets")] | None = None
    colour: Annotated[Literal["red", "green", "blue"], option("Colour.", Section.MODEL)] | None = None
    side: Annotated[Literal["left", "right"], option("Side.", Section.MODELS)] = "left"
    called: Annotated[str, option("Name.", Section.LOGS, most=9)] | None = None
"""
_BEFORE = "    seed: Annotated[int, option(\n"
_TOOLS = Path(__file__).parents[2] / "tools"


def add_toy() -> None:
    """Import `kintune.core.config` with one more option."""
    spec = importlib.util.find_spec("kintune.core.config")
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text()
    assert text.count(_BEFORE) == 1
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    exec(compile(text.replace(_BEFORE, TOY + _BEFORE), spec.origin, "exec"), vars(module))


def wrong(thing: Any, *arguments: Any, **settings: Any) -> str:
    """What is said of a call that is refused."""
    try:
        thing(*arguments, **settings)
    except Exception as error:
        return str(error)
    raise AssertionError(f"{thing} took {arguments} and {settings}")


def form_with(wanted: Any) -> tuple[dict[str, Any], Any]:
    """The properties of the form's element for the toy, and the request that the form returns."""
    from types import SimpleNamespace as Bare

    from nicegui import Client, ui

    from kintune.service.portal.job_form import JobForm

    application = Bare(devices=["local-cpu"], lacks=lambda _: {})
    context: Any = Bare(application=application, visitor=Bare(quota=Bare(upload_mb=1)))
    model: Any = Bare(id=1, findings=None)
    with Client(ui.page(""), request=None) as client:
        form = JobForm(context, model, wanted, lambda: None)  # type: ignore[arg-type, return-value]
        (element,) = (each for each in client.elements.values() if each.props.get("label") == "Toys at hand")
        return dict(element.props), form.request()


def faces() -> dict[str, Any]:
    """What each face says of the toy."""
    from click.testing import CliRunner

    from kintune import api
    from kintune.cli.root import root
    from kintune.core.config import COMPILE_FIELDS, Options, TuneConfig
    from kintune.core.constraints import check_fields, described
    from kintune.service.faces import in_fields
    from kintune.service.job_request import JobRequest, check
    from kintune.service.portal.job_words import describe_request, spoken
    from kintune.service.web.schemas import JobRequestIn

    toys: Any = {"toys": 3}
    others: Any = {"soft": False, "loud": True, "size": 2.5, "colour": "green", "side": "right", "called": "x y"}
    many: Any = {"toys": 10}
    model = api.load("zoo:resnet18")
    options = Options.of(TuneConfig(**toys))
    element, request = form_with(JobRequest(**toys))
    sys.path.insert(0, str(_TOOLS))
    tables = importlib.import_module("reference_pages")
    blocks = "".join(f"<!-- options of {of} -->\n<!-- end of options -->\n" for of in ("submit", "TuneConfig"))
    run = CliRunner().invoke
    with tempfile.TemporaryDirectory() as folder:
        command = str(run(root, ["compile", "zoo:resnet18", "--toys", "10", "-o", f"{folder}/x.kt"]).exception)
    return {
        "help": {name: run(root, [name, "--help"]).output for name in ("tune", "compile", "submit")},
        "refused": [command, wrong(check_fields, TuneConfig(**many)), wrong(check, JobRequest(**many)),
                    wrong(model.compile, progress=False, **many)],
        "compiles": "toys" in COMPILE_FIELDS,
        "run": msgspec.structs.asdict(options)["toys"],
        "told": [described(options), describe_request(JobRequest(**toys))],
        "schema": JobRequestIn.model_json_schema()["properties"]["toys"],
        "sent": msgspec.structs.asdict(JobRequestIn.model_validate(toys).wanted())["toys"],
        "form": {name: element[name] for name in ("hint", "model-value")},
        "submitted": msgspec.structs.asdict(request)["toys"],
        "kept": [form_with(wanted)[1] == wanted for wanted in (JobRequest(), JobRequest(**toys, **others))],
        "sent_too": JobRequestIn.model_validate(others).wanted() == JobRequest(**others),
        "told_too": describe_request(JobRequest(**others)),
        "words": [in_fields("leave --toys out"), spoken("toys must be few")],
        "pages": tables.with_tables(blocks, "python.md"),
        "reference": tables.python(),
    }  # fmt: skip


if __name__ == "__main__":
    add_toy()
    print(json.dumps(faces()))
