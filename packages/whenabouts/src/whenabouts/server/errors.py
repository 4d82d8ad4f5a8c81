"""Turns errors into answers: a status, a code for programs, a message for users."""

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
from whenabouts.video.files import printable as printable_path
from whenabouts.video.probe import MediaError


class Paths(Protocol):
    """Which paths a message may show (`server.paths.Paths`)."""

    def without_folders(self, text: str) -> str:
        """The message with folders removed and file names kept."""

    def unless_hidden(self, text: str, instead: str) -> str:
        """The message, or `instead` if paths are hidden."""


class Problem(BaseModel):
    """An error: `code` for programs, `message` for users, `field` if it is about one parameter."""

    code: str
    message: str
    field: str | None = None


class ErrorBody(BaseModel):
    """The body of every error answer."""

    error: Problem


class ServerError(Exception):
    """An error that becomes an answer with `status`, `headers` and a `Problem`."""

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
        self.headers = {"Cache-Control": "no-store", **(headers or {})}

    def response(self) -> Response:
        """The answer as JSON."""
        problem = Problem(code=self.code, message=printable(self.message), field=self.field)
        return JSONResponse(ErrorBody(error=problem).model_dump(), self.status, self.headers)

    def page(self) -> Response:
        """The answer for a browser: the message as plain text."""
        return PlainTextResponse(f"whenabouts: {printable(self.message)}\n", self.status, self.headers)


def busy(kind: str, seconds: int, status: int = 429) -> ServerError:
    """The error for too many requests of one kind; `seconds` until a retry may succeed."""
    return ServerError(
        status,
        "busy",
        f"too many requests for {kind} at once; try again in {seconds} s",
        headers={"Retry-After": str(seconds)},
    )


def no_video(video_id: str) -> ServerError:
    """The error 404 for an unknown video id."""
    return ServerError(
        404, "no_such_video", f"this corpus has no video {video_id[:100]!r}; /api/videos lists them"
    )


@contextlib.contextmanager
def safe_errors(path: Path, out: Path, *others: Path) -> Iterator[None]:
    """Turn errors of reading `path` and `others` and of writing `out` into a ServerError without folders."""
    try:
        yield
    except (OSError, WhenaboutsError) as error:
        if _is_full(error if isinstance(error, OSError) else error.__cause__):
            raise _disk_full("this file was discarded") from error
        if isinstance(error, OSError | WriteError):
            raise ServerError(500, "internal", "the file could not be written") from error
        message = str(error).replace(printable_path(out), "the clip")
        for source in (path, *others):
            message = message.replace(printable_path(source), printable_path(Path(source.name)))
        status = 400 if isinstance(error, UsageError) else 409
        raise ServerError(status, "unreadable_video" if status == 409 else "invalid", message) from error


def _is_full(error: BaseException | None) -> bool:
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)


def _disk_full(effect: str) -> ServerError:
    return ServerError(507, "disk_full", f"the server's disk is full; {effect}")


def printable(text: str) -> str:
    """Text with bytes that are not UTF-8 (in file names) escaped, so that JSON can hold it."""
    return text.encode("utf-8", "backslashreplace").decode()


_DESCRIPTIONS = {
    400: "A parameter is missing, unknown or out of range",
    401: "A token is needed",
    403: "The token lacks a scope; or the request used another host name, or came from another site's page",
    404: "No such video, stream or route",
    409: "Not possible in the present state of the file or the corpus",
    410: "The file is gone",
    413: "The request is too large",
    416: "The range lies outside the file",
    429: "Too many requests; retry after Retry-After seconds",
    500: "An error of the server",
    503: "The corpus cannot be read now, or a model is missing",
    507: "The disk is full",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route for OpenAPI, including those that any route may give."""
    return {
        status: {"model": ErrorBody, "description": _DESCRIPTIONS[status]}
        for status in sorted({*statuses, 400, 401, 403, 413, 429, 500, 503})
    }


def handle_errors(app: FastAPI, paths: Paths) -> None:
    """Answer every error with a `Problem`; `paths` decides which paths messages may show."""

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
                problem = ServerError(500, "internal", "an error of the server; its log has the details")
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
    """The answer to an error raised below the server."""
    message = paths.without_folders(str(error))
    if isinstance(error, PackageMissing):
        return ServerError(503, "not_installed", message)
    if isinstance(error, UsageError):
        return ServerError(400, "invalid", message)
    if isinstance(error, TookTooLong):
        narrower = f"{message}; search fewer videos, or start the server with a higher --time-limit"
        return ServerError(503, "took_too_long", narrower)
    if isinstance(error, DiskFull):
        return ServerError(507, "disk_full", paths.unless_hidden(str(error), "the server's disk is full"))
    if isinstance(error, CorpusBusy):
        busy = "this corpus is being indexed or changed; try again afterwards"
        return ServerError(409, "corpus_busy", paths.unless_hidden(str(error), busy))
    if isinstance(error, EncoderUnavailable):
        missing = "this needs a model that is not installed on the server; its log says which"
        return ServerError(503, "model_missing", paths.unless_hidden(str(error), missing), field="stream")
    if isinstance(error, StoreError):
        cause = paths.unless_hidden(str(error), "the corpus cannot be read now; the server's log says why")
        return ServerError(503, "corpus_unavailable", cause, headers={"Retry-After": "5"})
    if isinstance(error, MediaError):
        return ServerError(409, "unreadable_video", message)
    return ServerError(500, "internal", message)


def _of_validation(error: RequestValidationError) -> ServerError:
    """The answer for the first invalid parameter of a request."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"][1:] if not isinstance(part, int)]
    field = place[-1] if place else None
    kind = str(first["type"])
    if kind == "json_invalid":
        return ServerError(400, "invalid_json", f"the body is not JSON: {first['msg']}")
    if kind == "extra_forbidden":
        return ServerError(400, "unknown_parameter", f"there is no parameter {field!r}", field=field)
    if kind == "missing":
        return ServerError(400, "missing_parameter", f"{field or 'the body'} is missing", field=field)
    message = str(first["msg"]).removeprefix("Value error, ")
    return ServerError(400, "invalid_parameter", f"{field or 'the body'}: {message}", field=field)
