"""Which requests are let in: by token, host name, the site of the page that sends them, and size."""

from __future__ import annotations

import hmac
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whenabouts.server.errors import ServerError, busy
from whenabouts.server.settings import LOOPBACK_NAMES, Settings

COOKIE = "whenabouts_session"
_COOKIE_SECONDS = 30 * 86_400
# So many wrong tokens a minute are answered 401; what comes on top 429, which a right one never gets.
_WRONG_A_MINUTE = 30
HEALTH = "/api/health"
SEARCH = "/api/search"
_LENGTH = re.compile(r"[0-9]{1,18}")
_log = logging.getLogger(__name__)

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; media-src 'self' blob:; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """Passes allowed requests on and answers all others; every answer gets `HEADERS`.

    `people` are further tokens, and whose they are. A request that is passed on says in `scope["user"]` whose
    token it came with: "" for the one of the settings. `cookie` is the name of the cookie that keeps it.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        *,
        people: Mapping[str, str] | None = None,
        cookie: str = COOKIE,
    ) -> None:
        self._app, self._settings, self._clock, self._cookie = app, settings, clock, cookie
        self._people = {**(people or {}), settings.token: ""}
        self._sessions = {session_of(token): name for token, name in self._people.items()}
        self._wrong: list[float] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        body: Receive | None = None
        try:
            answer = self._answer(scope)
            body = await self._body(scope, receive) if answer is None else None
        except ServerError as error:
            is_page = any("text/html" in accepted for accepted in _values(scope, b"accept"))
            answer = error.page() if is_page else error.response()
        except Exception:
            _log.exception("a request could not be checked")
            answer = ServerError(500, "internal", "a fault of the server; its log has the details").response()
        if answer is not None:
            await answer(scope, receive, send_guarded)
            return
        await self._app(scope, receive if body is None else body, send_guarded)

    def _answer(self, scope: Scope) -> Response | None:
        """The answer to a request that is not passed on; None for one that is."""
        self._check_host(_values(scope, b"host"))
        _check_site(scope)
        self._check_length(scope)
        if not self._settings.token or scope["path"] == HEALTH:
            return None
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in given if name == "token"]
        if tokens and scope["method"] in ("GET", "HEAD"):
            token = self._token(tokens)
            return self._exchanged(scope, token, [pair for pair in given if pair[0] != "token"])
        scope["user"] = self._person(scope)
        return None

    def _check_host(self, hosts: list[str]) -> None:
        if len(hosts) != 1:
            raise ServerError(400, "bad_host", "one Host header is needed")
        if self._settings.is_loopback and _host_name(hosts[0]) not in LOOPBACK_NAMES:
            raise ServerError(
                403, "wrong_host", f"this server is localhost, not {hosts[0][:100]!r}", field="Host"
            )

    def _check_length(self, scope: Scope) -> None:
        lengths = _values(scope, b"content-length")
        if any(not _LENGTH.fullmatch(length) for length in lengths) or len(lengths) > 1:
            raise ServerError(400, "bad_length", "Content-Length is no length", field="Content-Length")
        if lengths and int(lengths[0]) > self._most_bytes(scope):
            raise self._too_large(scope)

    def _most_bytes(self, scope: Scope) -> int:
        """How long a body may be; a search may bring a picture."""
        limits = self._settings.limits
        is_search = scope["method"] == "POST" and scope["path"] == SEARCH
        return limits.picture_bytes if is_search else limits.body_bytes

    def _too_large(self, scope: Scope) -> ServerError:
        most = self._most_bytes(scope)
        return ServerError(413, "too_large", f"a body may have at most {most} bytes")

    async def _body(self, scope: Scope, receive: Receive) -> Receive | None:
        """The body of a request, read as long as it keeps within its bound; None where none is due."""
        if scope["method"] in ("GET", "HEAD"):
            return None
        messages: list[Message] = []
        read = 0
        while True:
            message = await receive()
            messages.append(message)
            read += len(message.get("body", b""))
            if read > self._most_bytes(scope):
                raise self._too_large(scope)
            if message["type"] != "http.request" or not message.get("more_body"):
                break

        async def replay() -> Message:
            return messages.pop(0) if messages else await receive()

        return replay

    def _person(self, scope: Scope) -> str:
        """Whose the Authorization header is, else the cookie; ServerError 401 or 429."""
        given = _values(scope, b"authorization")
        if given:
            scheme, _, token = given[0].partition(" ")
            return self._people[
                self._token([token.strip() if scheme.lower() == "bearer" else "", *given[1:]])
            ]
        cookies = _cookies(_values(scope, b"cookie"), self._cookie)
        people = [n for session, n in self._sessions.items() for cookie in cookies if same(cookie, session)]
        if not people:
            message = (
                "a token is needed: open the link that you were given, or add ?token= and the server's token"
            )
            raise self._unauthorized(message)
        return people[0]

    def _token(self, given: list[str]) -> str:
        """The one of our tokens that was given."""
        matching = [token for token in self._people if len(given) == 1 and same(given[0], token)]
        if not matching:
            raise self._unauthorized(
                "this token is not the server's; it may have been started anew with another one"
            )
        return matching[0]

    def _unauthorized(self, message: str) -> ServerError:
        now = self._clock()
        self._wrong = [*(at for at in self._wrong if now - at < 60), now][-_WRONG_A_MINUTE - 1 :]
        if len(self._wrong) > _WRONG_A_MINUTE:
            return busy("wrong tokens", 60)
        return ServerError(401, "unauthorized", message, headers={"WWW-Authenticate": "Bearer"})

    def _exchanged(self, scope: Scope, token: str, rest: Iterable[tuple[str, str]]) -> Response:
        """The same address without the token, which moves into a cookie that scripts cannot read."""
        query = urlencode(list(rest))
        path = "/" + scope["raw_path"].split(b"?")[0].decode("latin-1").lstrip("/")
        answer = RedirectResponse(path + (f"?{query}" if query else ""), 303)
        answer.set_cookie(
            self._cookie,
            session_of(token),
            max_age=_COOKIE_SECONDS,
            httponly=True,
            samesite="lax",
            path="/",
        )
        answer.headers["Cache-Control"] = "no-store"
        return answer


def session_of(token: str) -> str:
    """The value of the cookie: made from the token, and not the token."""
    return blake2b(b"whenabouts session", key=token.encode()[:64], digest_size=24).hexdigest()


def same(given: str, secret: str) -> bool:
    """Whether a text is the secret, in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def _check_site(scope: Scope) -> None:
    """Refuse requests of pages of other sites; a link to the page may be followed from anywhere."""
    sites = _values(scope, b"sec-fetch-site")
    modes = _values(scope, b"sec-fetch-mode")
    if "cross-site" in sites and not (modes == ["navigate"] and scope["method"] == "GET"):
        raise ServerError(403, "cross_site", "a page of another site may not ask this server")
    # What does not send Sec-Fetch-Site may send Origin; where neither comes, no page of a browser asks.
    hosts = [host.lower() for host in _values(scope, b"host")]
    for origin in _values(scope, b"origin"):
        try:
            host = urlsplit(origin).netloc.lower()
        except ValueError:
            raise ServerError(400, "bad_origin", "the Origin header is no address", field="Origin") from None
        if host not in hosts:
            raise ServerError(403, "cross_site", "a page of another site may not ask this server")


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _host_name(host: str) -> str:
    """The name in a Host header, without its port, in lower case."""
    name, colon, port = host.rpartition(":")
    if colon and port.isdecimal() and (not name.startswith("[") or name.endswith("]")):
        host = name
    return host.strip("[]").lower()


def _cookies(headers: Iterable[str], name: str) -> list[str]:
    """The values of the cookies of a name."""
    values = []
    for header in headers:
        try:
            jar = SimpleCookie(header)
        except CookieError:
            continue
        if name in jar:
            values.append(jar[name].value)
    return values
