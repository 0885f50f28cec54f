"""What a shell offers for a parameter: files, networks of the zoo, runs in the records, words of a choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["Offer", "complete_by_metavar", "offering"]

Offer = Callable[[click.Context, click.Parameter, str], list["CompletionItem"]]
"""Returns the completions of an incomplete word."""

_ZOO = "zoo:"


def complete_by_metavar(command: click.Command) -> None:
    """Let shells complete those parameters of a command whose metavar, such as FILE or MODEL, says what they are."""
    for param in command.params:
        if type(param.type) is type(click.STRING):
            meaning = param.metavar or (param.name or "").upper()
            offer = _offer_for(meaning)
            if offer is not None:
                param.type = _Completed(offer)


def offering(words: Sequence[str]) -> Offer:
    """Returns a function that offers those of `words` that begin with an incomplete word."""

    def offer(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in words if word.startswith(incomplete)]

    return offer


class _Completed(click.types.StringParamType):
    """A text that `offer` completes."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Returns the completions."""
        return self._offer(ctx, param, incomplete)


def _offer_for(meaning: str) -> Offer | None:
    if "MODEL" in meaning and not meaning.endswith(".onnx"):
        return _models
    if meaning == "RUN":
        return _runs
    if "FILE" in meaning or "." in meaning or meaning == "WHEEL":
        return _files
    return _folders if "DIR" in meaning else None


def _files(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def _folders(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def _models(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, and the networks of the zoo once the word begins like theirs."""
    from click.shell_completion import CompletionItem

    files = _files(context, param, incomplete)
    if not incomplete or incomplete[: len(_ZOO)] != _ZOO[: len(incomplete)]:
        return files
    from kintune.models import zoo

    names = [f"{_ZOO}{name}" for name in zoo.names()]
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return found if incomplete.startswith(_ZOO) else [*found, *files]


def _runs(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of runs in the records; nothing where those cannot be read.  A report is a file as well."""
    from click.shell_completion import CompletionItem

    from kintune.errors import KintuneError
    from kintune.records import Store

    try:
        with Store.open(context.params.get("records"), create=False) as store:
            runs = [run for run in store.runs.list(on_damage=_leave_out) if run.run_id.startswith(incomplete)]
    except KintuneError:
        runs = []
    return [*(CompletionItem(run.run_id) for run in runs), *_files(context, param, incomplete)]


def _leave_out(damage: object) -> None:
    """Offer no damaged run."""
    del damage
