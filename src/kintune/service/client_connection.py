"""What the client of a service knows of HTTP: requests, further tries, pages of lists, and errors from answers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from kintune.core.backoff import BackOff
from kintune.errors import InputError, KintuneError

__all__ = ["PATIENT", "SERVICE_VARIABLE", "TIMEOUT", "TOKEN_VARIABLE", "ServiceConnection", "ServiceError"]

SERVICE_VARIABLE, TOKEN_VARIABLE = "KINTUNE_SERVICE", "KINTUNE_TOKEN"
"""The environment variables that name the service and the token."""

TIMEOUT = httpx.Timeout(60.0)
PATIENT = httpx.Timeout(60.0, read=600.0)
"""How long an answer is waited for: usually, and where the service inspects or makes something before it answers."""

_TRIES = 4
_CHUNK = 1 << 20
_A_PAGE = 200  # entries that the service lists at once
_UNAUTHORIZED, _NOT_FOUND, _CONFLICT = 401, 404, 409
_AWAY = (502, 503, 504)  # what a service answers, or a proxy for it, that is being started again


class ServiceError(KintuneError):
    """The service cannot be reached, or could not do what was asked."""


class ServiceConnection:
    """Sends requests to one service; `address` is where it is."""

    def __init__(
        self,
        address: str | None,
        token: str | None,
        transport: httpx.BaseTransport | None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Opens no connection yet; None for the address or the token takes it from the environment.

        The `headers` are sent with each request.

        Raises:
            InputError: the address or the token cannot be one.
        """
        self.address = _address(address or os.environ.get(SERVICE_VARIABLE) or "http://127.0.0.1:8190")
        token = _token(token or os.environ.get(TOKEN_VARIABLE) or "")
        sent = {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}
        self._http = httpx.Client(base_url=self.address, headers=sent, timeout=TIMEOUT, transport=transport)

    def close(self) -> None:
        """Closes all connections."""
        self._http.close()

    def ask(
        self,
        method: str,
        path: str,
        done_before: Callable[[], Any] = lambda: None,
        *,
        none_for: Collection[int] = (),
        content: Callable[[], Iterator[bytes]] | None = None,
        **more: Any,
    ) -> Any:
        """Sends a request, again while the service does not answer; returns its JSON answer, None where it is empty.

        `content` makes the body anew for each try.  `done_before` returns an answer, if there is one, where the service
        refuses a second try because the first, whose answer was lost, was carried out.  A status of `none_for` is no
        error: None is returned.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service does not answer, or fails.
        """
        waits = BackOff(0.5)
        for number in range(_TRIES):
            try:
                body = None if content is None else content()
                response = self._http.request(method, path, content=body, **more)
            except httpx.TransportError as error:
                if number == _TRIES - 1:
                    raise self._silent(error) from error
            else:
                if response.status_code not in _AWAY or number == _TRIES - 1:
                    if number and response.status_code == _CONFLICT and (answer := done_before()) is not None:
                        return answer
                    if number and method == "DELETE" and response.status_code == _NOT_FOUND:
                        return None  # the first try did it
                    return None if response.status_code in none_for else self._document(response)
            time.sleep(waits.next_wait())
        raise AssertionError("unreachable")

    def send_file(self, path: str, file: Path, **more: Any) -> Any:
        """Sends a file as the body of a POST, piece by piece; returns the JSON answer, as `ask` does.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service does not answer, or fails.
        """
        return self.ask("POST", path, content=partial(_chunks, file), timeout=PATIENT, **more)

    def pages(
        self, path: str, what: str, limit: int, parameters: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Asks for one page of a list after the other, until there are `limit` entries, or no more.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service does not answer, or fails.
        """
        found: list[dict[str, Any]] = []
        asked = dict(parameters or {})
        while len(found) < limit:
            page = self.ask("GET", path, params={**asked, "limit": min(limit - len(found), _A_PAGE)})
            if not isinstance(page, dict) or not isinstance(page.get(what), list):
                raise self._stranger()
            found += page[what]
            if (following := page.get("next")) is None:
                break
            asked["after"] = following
        return found

    @contextmanager
    def receiving(self, path: str, media_type: str, timeout: httpx.Timeout) -> Iterator[httpx.Response]:
        """A context with the answer to a GET: a file of the `media_type`, whose content is still to be read.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service does not answer, fails, or breaks off; or what answers is no service, such as a
                proxy with a page where users sign in.
        """
        try:
            with self._http.stream("GET", path, timeout=timeout) as response:
                self._check(response)
                if not _is_file(response, media_type):
                    raise self._stranger()
                yield response
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise self._silent(error) from error
        except httpx.TransportError as error:
            raise ServiceError(f"{self.address} closed the connection ({error}); try again") from error

    def events(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the events of a stream as (kind, data) until it ends; none while the service is being started again.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service fails, or what answers is no service.
            httpx.TransportError: it does not answer, or breaks off.
        """
        with self._http.stream("GET", path) as response:  # it speaks every 15 seconds
            if response.status_code in _AWAY:
                return
            self._check(response)
            if response.headers.get("content-type", "").startswith("text/html"):
                raise self._stranger()
            kind = ""
            for line in response.iter_lines():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    try:
                        data = json.loads(line.removeprefix("data: "))
                    except ValueError as error:
                        raise self._stranger() from error
                    yield kind, data

    def _document(self, response: httpx.Response) -> Any:
        """The JSON answer of the service, None where it is empty.

        Raises:
            InputError: the service refuses the request, or is elsewhere.
            ServiceError: it has failed, or what answers is no service.
        """
        self._check(response)
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError as error:
            raise self._stranger() from error

    def _check(self, response: httpx.Response) -> None:
        """Checks that the service does what was asked.

        Raises:
            InputError: it refuses the request, or is elsewhere.
            ServiceError: it has failed.
        """
        if response.is_success:
            return
        response.read()
        if response.has_redirect_location:
            place = str(response.url.join(response.headers["location"])).partition("/api/")[0]
            raise InputError(f"{self.address} has moved to {place}; name that address")
        if response.status_code == _UNAUTHORIZED:
            raise InputError(
                f"{self.address} takes a valid token: give one with --token (in Python token=...) or ${TOKEN_VARIABLE}"
            )
        said = _said(response)
        raise InputError(said) if response.is_client_error else ServiceError(said)

    def _silent(self, error: Exception) -> ServiceError:
        return ServiceError(f"{self.address} does not answer ({error}); is `kintune serve` running there?")

    def _stranger(self) -> ServiceError:
        return ServiceError(f"{self.address} does not answer as a service of Kintune; is the address right?")


def _chunks(file: Path) -> Iterator[bytes]:
    """The content of a file, piece by piece."""
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK):
            yield chunk


def _is_file(response: httpx.Response, media_type: str) -> bool:
    """Returns whether an answer is a file of this type, as the service sends them."""
    sent, disposition = (str(response.headers.get(name, "")) for name in ("content-type", "content-disposition"))
    return sent.partition(";")[0].strip().lower() == media_type and disposition.lower().startswith("attachment")


def _address(text: str) -> str:
    try:
        url = httpx.URL(text)
        fine = url.scheme in ("http", "https") and bool(url.host) and not any(each.isspace() for each in text)
    except httpx.InvalidURL:
        fine = False
    if not fine:
        raise InputError(f"{text!r} is no address of a service; name it as http://HOST:PORT or https://HOST")
    return text.rstrip("/")


def _token(text: str) -> str:
    token = text.strip()
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise InputError("the token has characters that no token has; make one with: kintune service add-token")
    return token


def _said(response: httpx.Response) -> str:
    """The line in which the service says what is wrong."""
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if isinstance(answer, dict) and "error" in answer:
        return str(answer["error"])
    details = answer.get("detail") if isinstance(answer, dict) else None
    reason = f" ({details})" if isinstance(details, str) else ""
    return f"the service answers {response.status_code}{reason}"
