from __future__ import annotations

import pytest

import kintune
from kintune.service.readable_paths import without_paths

DIGEST = "2e8b" * 16


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"/srv/data/content/2e/{DIGEST}: is no model", "net.onnx: is no model"),
        ("'/srv/data/work/ab12/inputs0-samples.npz' lacks x", "'samples.npz' lacks x"),
        (f"/srv/data/content/aa/{'a' * 64}, which", "a file of the service, which"),
        (
            f"{kintune.__file__}: broken; node /encoder/layer.0/MatMul",
            "__init__.py: broken; node /encoder/layer.0/MatMul",
        ),
        ("/srv/database/content is another", "/srv/database/content is another"),
        ("written to /srv/data/work/ab12/net.kt.unproven", "written to net.kt.unproven"),
    ],
)
def test_users_are_told_names_of_files_alone(text: str, said: str) -> None:
    assert without_paths(text, "/srv/data", {f"/srv/data/content/2e/{DIGEST}": "net.onnx"}) == said
