"""What a reader finds in the folder in which they type the commands of a page of the documentation.

Each function makes, for one command, what that speaks of: small networks in place of the user's, and specs that are
copied from the page, with less in them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

__all__ = ["PAGES", "FollowedPage", "indented"]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

Prepare = Callable[[Path, str], None]
"""Makes in a folder what a command finds there."""


class FollowedPage(NamedTuple):
    """What makes the files that commands name, what is typed before, and options that some commands get besides."""

    prepare: Prepare
    before: tuple[str, ...] = ()
    own: Mapping[str, str] = {}


def indented(page: str, first: str) -> str:
    """The indented block of a page that begins so."""
    text = (DOCS / page).read_text()
    found = re.search(rf"^    {re.escape(first)}.*\n(?:^(?:    .*)?\n)*", text, re.M)
    assert found is not None, f"{page} has no block that begins with {first}"
    return "\n".join(line[4:] for line in found[0].splitlines()) + "\n"


def shortened(text: str, changes: Mapping[str, str]) -> str:
    """A text with these lines (by how they begin, up to a comment) replaced."""
    for beginning, line in changes.items():
        text, count = re.subn(rf"^{re.escape(beginning)}\s*=.*$", line, text, flags=re.M)
        assert count, f"no line begins with {beginning}"
    return text


def images(folder: Path, command: str) -> None:
    from tests.support.doc_models import write_image_model, write_resize_model, write_samples, write_text_model

    model = folder / "model.onnx"
    if "--constant sizes=" in command:
        write_resize_model(model)
    elif "--shape" in command and "ids=" in command:
        write_text_model(model)
    elif "--shape" in command:
        write_image_model(model, shape=(1, 3, "height", "width"))
    else:
        write_image_model(model)
    drawn = np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)
    write_samples(folder / "samples", [{"input": drawn}, {"input": drawn + 1}])
    if not (folder / "x.npz").exists():
        np.savez(folder / "x.npz", input=drawn)


def scored(folder: Path, command: str) -> None:
    from tests.support.doc_models import write_image_model, write_product_model, write_samples

    write_image_model(folder / "model.onnx", name="images", output="scores", shape=(1, 3, 32, 32))
    write_product_model(folder / "decoder.onnx", name="images", shape=(1, 3, 32, 32))
    drawn = np.random.default_rng(0).standard_normal((4, 1, 3, 32, 32), np.float32)
    write_samples(folder / "samples", [{"images": each} for each in drawn])
    loads = "def load_samples():\n    return numpy.ones((2, 3, 32, 32), 'float32'), numpy.array([0, 0])\n"
    (folder / "score.py").write_text(f"import numpy\n\n{loads}\n{indented('precision.md', 'def accuracy')}")


def texts(folder: Path, command: str) -> None:
    from tests.support.doc_models import write_text_model

    write_text_model(folder / "model.onnx")
    np.savez(folder / "x.npz", ids=np.ones((1, 64), np.int64), mask=np.ones((1, 64), np.int64))


def in_parts(folder: Path, command: str) -> None:
    import onnx

    from tests.support.partitions import parse

    if not (folder / "model.onnx").exists():
        text = "m (float[64, 512] x) => (float[64, 512] y, int64[2, N] z) { a = Relu(x) y = Sigmoid(a) z = NonZero(a) }"
        onnx.save(parse(text), folder / "model.onnx")


def several(folder: Path, command: str) -> None:
    from tests.support.doc_models import write_image_model

    for name in ("a", "b", "model"):
        write_image_model(folder / f"{name}.onnx", shape=(1, 3, 32, 32))


def schedules(folder: Path, command: str) -> None:
    several(folder, command)
    if not (folder / "benchmarks").exists():
        (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
    spec = indented("simulate.md", 'name = "two-jobs"')
    changes = {"rounds": "rounds = 2", "start_s": "start_s = 4", "interference": ""}
    (folder / "SPEC.toml").write_text(shortened(spec, changes))


def benches(folder: Path, command: str) -> None:
    several(folder, command)
    changes = {
        "model   ": 'model = ["a.onnx"]',
        "families": 'families = ["op"]',
        "seed    ": "seed = [0]",
        "minutes ": "trials = 4",
    }
    (folder / "families.toml").write_text(shortened(indented("bench.md", "# families.toml"), changes))


def comparisons(folder: Path, command: str) -> None:
    import onnx

    from tests.support.partitions import parse

    models = folder / "my_models"
    models.mkdir(exist_ok=True)
    body = "{ p = GlobalAveragePool(image) f = Flatten(p) s = ReduceSum<keepdims=1>(sizes) y = Mul(f, s) }"
    text = f"m (float[1, 3, H, W] image, float[1, 2] sizes) => (float[1, 3] y) {body}"
    onnx.save(parse(text), models / "detector.onnx")
    (folder / "mine.toml").write_text(shortened(indented("compare.md", 'name = "mine"'), {"minutes": "minutes = 0"}))


_RESULT = "kintune compile model.onnx --output model.kt"

PAGES: Mapping[str, FollowedPage] = {
    "README.md": FollowedPage(images),
    "bench.md": FollowedPage(benches),
    "cli.md": FollowedPage(images),
    "compare.md": FollowedPage(comparisons),
    "families.md": FollowedPage(images),
    "hybrid.md": FollowedPage(in_parts, before=(_RESULT,)),
    "precision.md": FollowedPage(scored),
    "profile.md": FollowedPage(images, before=(_RESULT,)),
    "quickstart.md": FollowedPage(images),
    "releases.md": FollowedPage(several, before=("kintune tune model.onnx --trials 4", "kintune serve --data tuning")),
    "scale.md": FollowedPage(
        several,
        own={
            "kintune serve": "--alike 20",  # the machine is busy with all of them
            "kintune worker start": "--name host-2",
            "kintune device start": "--name board-1",
        },
    ),
    "service.md": FollowedPage(images, before=(_RESULT,)),
    "shapes.md": FollowedPage(texts),
    "simulate.md": FollowedPage(schedules),
    "tasks.md": FollowedPage(images),
    "together.md": FollowedPage(several),
}
"""The pages whose commands are run in order and in one folder."""
