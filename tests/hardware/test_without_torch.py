from __future__ import annotations

import sys

import pytest

from kintune.hardware.software import allow_torch, forbid_torch


def test_an_import_fails_until_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    forbid_torch()
    with pytest.raises(ImportError):
        __import__("torch")
    assert "torch" not in sys.modules  # scipy asks what stands there for a module's members
    allow_torch()
    forbid_torch()
    forbid_torch()
    allow_torch()
    assert __import__("importlib.util").util.find_spec("json") is not None
    assert all(type(finder).__name__ != "_NoTorch" for finder in sys.meta_path)


def test_what_is_imported_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    forbid_torch()
    allow_torch()
    assert sys.modules["torch"] is sys


def test_what_others_forbid_stays_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    forbid_torch()
    allow_torch()
    assert sys.modules["torch"] is None
