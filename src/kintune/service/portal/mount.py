"""Puts the portal's pages into the application."""

from __future__ import annotations

from importlib import import_module

from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import ui

from kintune.service.portal import sign_in as doors

__all__ = ["mount"]

_PAGES = ("job", "jobs", "models", "others")


def mount(app: FastAPI) -> None:
    """Add the pages; a process has one portal."""
    for name in _PAGES:
        import_module(f"kintune.service.portal.{name}")  # pages are there once they are imported
    app.include_router(doors.router)
    for name in ("rooms", "board", "counter"):
        setattr(nicegui_app.state, name, getattr(app.state, name))  # pages belong to NiceGUI's own application
    ui.run_with(app, title="Kintune", dark=None, show_welcome_message=False)
