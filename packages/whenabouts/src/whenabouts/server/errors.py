"""Errors as answers: a status, a code for programs, a message for people."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

from whenabouts.budget import TookTooLong
from whenabouts.encoders.protocol import EncoderUnavailable
from whenabouts.extras import lacking
from whenabouts.index.lock import CorpusBusy
from whenabouts.index.records import DiskFull, StoreError
from whenabouts.plugins import PackageMissing
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts.video.aside import WriteError
from whenabouts.video.probe import MediaError


class Paths(Protocol):
    """What of a path may be shown (`server.paths.Paths`)."""

    def without_folders(self, text: str) -> str:
        """A message without the folders in it, where these are hidden."""

    def unless_hidden(self, text: str, instead: str) -> str:
        """A message, or another one where paths are hidden."""


class Problem(BaseModel):
    """An error: `code` for programs, `message` for people, `field` where it is about one parameter."""

    code: str
    message: str
    field: str | None = None


class ErrorBody(BaseModel):
    """The body of every answer that is an error."""

    error: Problem


class ServerError(Exception):
    """An error that is answered with `status`, `headers` and a `Problem`."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.field = status, code, message, field
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """The answer on the wire."""
        problem = Problem(code=self.code, message=printable(self.message), field=self.field)
        return JSONResponse(
            ErrorBody(error=problem).model_dump(),
            self.status,
            headers={"Cache-Control": "no-store", **self.headers},
        )

    def page(self) -> Response:
        """The answer to a person who opened an address in a browser: the message alone."""
        headers = {"Cache-Control": "no-store", **self.headers}
        return PlainTextResponse(f"whenabouts: {printable(self.message)}\n", self.status, headers)


def busy(kind: str, seconds: int) -> ServerError:
    """Too many requests of one kind at once (429)."""
    return ServerError(
        429,
        "busy",
        f"too many requests for {kind} at once; try again in {seconds} s",
        headers={"Retry-After": str(seconds)},
    )


def no_video(video_id: str) -> ServerError:
    """No video of the corpus has this id (404)."""
    return ServerError(
        404, "no_such_video", f"this corpus has no video {video_id[:100]!r}; /api/videos lists them"
    )


@contextlib.contextmanager
def safe_errors(path: Path, out: Path) -> Iterator[None]:
    """Raise errors of reading `path` and writing `out` as ServerError, without places on the disk."""
    try:
        yield
    except (OSError, WhenaboutsError) as error:
        if _is_full(error if isinstance(error, OSError) else error.__cause__):
            raise _disk_full("nothing was kept of this file") from error
        if isinstance(error, OSError | WriteError):
            raise ServerError(500, "internal", "the file could not be written") from error
        message = str(error).replace(str(path), path.name).replace(str(out), "the clip")
        status = 400 if isinstance(error, UsageError) else 409
        raise ServerError(status, "unreadable_video" if status == 409 else "invalid", message) from error


def _is_full(error: BaseException | None) -> bool:
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)


def _disk_full(effect: str) -> ServerError:
    return ServerError(507, "disk_full", f"the server's disk is full; {effect}")


def printable(text: str) -> str:
    """Text without what JSON cannot hold: bytes of file names that are no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


_DESCRIPTIONS = {
    400: "A parameter that is missing, unknown, or out of its range",
    401: "A token is needed",
    403: "The token lacks a scope; or asked for under a name, or from a page, that is not this server's",
    404: "No such video, stream or route",
    409: "As the file or the corpus is now it cannot be done",
    410: "The file is gone",
    413: "The request is too large",
    416: "The range lies outside the file",
    429: "Too much at once; come again after Retry-After seconds",
    500: "A fault of the server",
    503: "The corpus cannot be read now, or a model is missing",
    507: "The disk is full",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route for its OpenAPI description; those that any route may answer are added."""
    return {
        status: {"model": ErrorBody, "description": _DESCRIPTIONS[status]}
        for status in sorted({*statuses, 400, 401, 403, 429, 500, 503})
    }


def handle_errors(app: FastAPI, paths: Paths) -> None:
    """Answer every error with a `Problem`; `paths` says what messages may show."""

    async def answer(_: Request, error: Exception) -> Response:
        match error:
            case ServerError():
                problem = error
            case WhenaboutsError():
                problem = of_whenabouts(error, paths)
            case RequestValidationError():
                problem = _of_validation(error)
            case HTTPException(status_code=status):
                code = {404: "not_found", 405: "method_not_allowed"}.get(status, "bad_request")
                problem = ServerError(status, code, str(error.detail), headers=error.headers or {})
            case OSError() if _is_full(error):
                problem = _disk_full("free some space there")
            case _:
                problem = ServerError(500, "internal", "a fault of the server; its log has the details")
        return problem.response()

    async def answer_lack(_: Request, error: Exception) -> Response:
        lack = lacking(error)
        if lack is None:
            raise error
        return ServerError(503, "not_installed", lack).response()

    app.add_exception_handler(ModuleNotFoundError, answer_lack)
    for kind in (ServerError, WhenaboutsError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)


def of_whenabouts(error: WhenaboutsError, paths: Paths) -> ServerError:
    """The answer to an error of the rooms below."""
    message = paths.without_folders(str(error))
    if isinstance(error, PackageMissing):
        return ServerError(503, "not_installed", message)
    if isinstance(error, UsageError):
        return ServerError(400, "invalid", message)
    if isinstance(error, TookTooLong):
        narrower = f"{message}; ask of fewer videos, or start the server with a higher --time-limit"
        return ServerError(503, "took_too_long", narrower)
    if isinstance(error, DiskFull):
        full = paths.unless_hidden(str(error), "the server's disk is full")
        return ServerError(507, "disk_full", full)
    if isinstance(error, CorpusBusy):
        busy = "an index run, or another change, is at work on this corpus; try again when it is done"
        return ServerError(409, "corpus_busy", paths.unless_hidden(str(error), busy))
    if isinstance(error, EncoderUnavailable):
        missing = "a model that this needs is not installed on the server; its log says which"
        return ServerError(503, "model_missing", paths.unless_hidden(str(error), missing), field="stream")
    if isinstance(error, StoreError):
        cause = paths.unless_hidden(str(error), "the corpus cannot be read now; the server's log says why")
        return ServerError(503, "corpus_unavailable", cause, headers={"Retry-After": "5"})
    if isinstance(error, MediaError):
        return ServerError(409, "unreadable_video", message)
    return ServerError(500, "internal", message)


def _of_validation(error: RequestValidationError) -> ServerError:
    """The first error in a request."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"][1:] if not isinstance(part, int)]
    field = place[-1] if place else None
    kind = str(first["type"])
    if kind == "json_invalid":
        return ServerError(400, "invalid_json", f"the body is no JSON: {first['msg']}")
    if kind == "extra_forbidden":
        return ServerError(400, "unknown_parameter", f"there is no parameter {field!r}", field=field)
    if kind == "missing":
        return ServerError(400, "missing_parameter", f"{field or 'the body'} is missing", field=field)
    message = str(first["msg"]).removeprefix("Value error, ")
    return ServerError(400, "invalid_parameter", f"{field or 'the body'}: {message}", field=field)
