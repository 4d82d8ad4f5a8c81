"""Admits or refuses requests by their token and scope, host name, originating site and size."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whenabouts.server.errors import ServerError, busy
from whenabouts.server.memory import MemoryBound
from whenabouts.server.settings import LOOPBACK_NAMES, Settings
from whenabouts.workplace.guests import (
    COLLECT,
    INDEX,
    READ,
    Guest,
    Guests,
    digest_of,
    in_order,
    matching,
    owner_of,
    session_of,
)

COOKIE = "whenabouts_session"
_COOKIE_SECONDS = 30 * 86_400
_MOST_COOKIES = 10
# Different wrong tokens per minute that are answered 401; more get 429. A right token never gets 429.
_WRONG_A_MINUTE = 30
HEALTH, READY = "/api/health", "/api/ready"
SEARCH = "/api/search"
_LENGTH = re.compile(r"[0-9]{1,18}")
_log = logging.getLogger(__name__)

Scopes = Mapping[str, Mapping[str, str]]
"""Address -> method -> scope needed, for the address and everything below it; the longest match decides.

Addresses outside the table are for the owner alone. HEAD counts as GET.
"""
_READ: Mapping[str, str] = {"GET": READ}
_KEPT: Mapping[str, str] = {"GET": READ, "POST": COLLECT, "PATCH": COLLECT, "DELETE": COLLECT}
_ADDED: Mapping[str, str] = dict.fromkeys(("GET", "POST", "DELETE"), INDEX)
SCOPES: Scopes = {
    "/": _READ,
    "/static": _READ,
    "/openapi.json": _READ,
    "/metrics": _READ,
    "/api/access": _READ,
    "/api/stats": _READ,
    "/api/search": {"GET": READ, "POST": READ},
    "/api/why": _READ,
    "/api/explain": _READ,
    "/api/export": _READ,
    "/api/videos": {"GET": READ, "POST": INDEX},
    "/api/facets": _READ,
    "/api/folders": _ADDED,
    "/api/jobs": _ADDED,
    "/api/watched": _ADDED,
    "/api/people": {"GET": READ, "POST": INDEX},
    "/api/collections": _KEPT,
    "/api/saved-searches": _KEPT,
}
_OWNER = owner_of("")
_NOT_VALID = (
    "this token is not valid here: it was withdrawn, or the server was restarted with another one; ask "
    "whoever gave you the link for a new one"
)

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

    `people` maps further tokens to their owners' names; all of them have the scopes `theirs`. `scopes` says
    what each address needs. A request that is passed on has its Guest in `scope["guest"]`; the settings' own
    token gives a Guest without a name. `cookie` is the name of the cookie that keeps the token. `memory`
    bounds what request bodies take. Raises UsageError if the file of guests cannot be read.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        *,
        people: Mapping[str, str] | None = None,
        theirs: Iterable[str] = (),
        scopes: Scopes = SCOPES,
        cookie: str = COOKIE,
        memory: Callable[[], MemoryBound] | None = None,
    ) -> None:
        self._app, self._settings, self._clock, self._cookie = app, settings, clock, cookie
        self._scopes = scopes
        self._theirs = frozenset(theirs)
        self._known: Sequence[Guest] = (owner_of(settings.token),)
        for token, name in (people or {}).items():
            self.admit(token, name)
        self._guests = None if settings.guests is None else Guests(settings.guests)
        if self._guests is not None:
            self._guests.listed()
        self._wrong: dict[str, float] = {}
        bound = MemoryBound(settings.limits.memory_bytes, [])
        self._memory = memory or (lambda: bound)

    def admit(self, token: str, name: str) -> None:
        """Admit one more token of `people`, if it is new."""
        guest = Guest(name, self._theirs, 0.0, owner_of(token).digest)
        if guest not in self._known:
            self._known = (*self._known, guest)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        with ExitStack() as reserved:
            try:
                answer = self._answer(scope)
                if answer is None and scope["method"] not in ("GET", "HEAD"):
                    reserved.enter_context(self._memory().body(self._length(scope)))
                    body = await self._body(scope, receive)
            except ServerError as error:
                is_page = any("text/html" in accepted for accepted in _values(scope, b"accept"))
                answer = error.page() if is_page else error.response()
            except Exception:
                _log.exception("a request could not be checked")
                answer = ServerError(
                    500, "internal", "an error of the server; its log has the details"
                ).response()
            if answer is not None:
                await answer(scope, receive, send_guarded)
                return
            await self._app(scope, receive if body is None else body, send_guarded)

    def _answer(self, scope: Scope) -> Response | None:
        """The answer to a request that is not passed on; None for one to pass on. Raises ServerError."""
        self._check_host(scope)
        _check_site(scope)
        self._length(scope)  # refuses a body that is too long
        scope["guest"] = _OWNER
        if not self._settings.token or scope["path"] in (HEALTH, READY):
            return None
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in given if name == "token"]
        if tokens and scope["method"] in ("GET", "HEAD"):
            self._guest_of(tokens)
            return self._exchanged(scope, tokens[0], [pair for pair in given if pair[0] != "token"])
        guest = scope["guest"] = self._who(scope)
        if guest.name:
            check_scope(guest, scope_of(self._scopes, scope["method"], scope["path"]))
        return None

    def _check_host(self, scope: Scope) -> None:
        hosts = _values(scope, b"host")
        if len(hosts) != 1:
            raise ServerError(400, "bad_host", "one Host header is needed")
        if scope.get("forwarded"):  # a trusted proxy reported the host name
            return
        names = LOOPBACK_NAMES | {self._settings.host.strip("[]")}
        if self._settings.is_loopback and _host_name(hosts[0]) not in names:
            raise ServerError(
                403, "wrong_host", f"this server is localhost, not {hosts[0][:100]!r}", field="Host"
            )

    def _length(self, scope: Scope) -> int:
        """The body's length by its header; without one, the most it may have. Raises ServerError."""
        lengths = _values(scope, b"content-length")
        if any(not _LENGTH.fullmatch(length) for length in lengths) or len(lengths) > 1:
            raise ServerError(400, "bad_length", "Content-Length is not a number", field="Content-Length")
        most = self._most_bytes(scope)
        if (length := int(lengths[0]) if lengths else most) > most:
            raise self._too_large(scope)
        return length

    def _most_bytes(self, scope: Scope) -> int:
        """The most bytes a body may have; a search may hold a picture."""
        limits = self._settings.limits
        is_search = scope["method"] == "POST" and scope["path"] == SEARCH
        return limits.picture_bytes if is_search else limits.body_bytes

    def _too_large(self, scope: Scope) -> ServerError:
        return ServerError(413, "too_large", f"a body may have at most {self._most_bytes(scope)} bytes")

    async def _body(self, scope: Scope, receive: Receive) -> Receive:
        """Read the body of a request, up to its bound, for replay."""
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

    def _who(self, scope: Scope) -> Guest:
        """The guest of the Authorization header, else of the cookie. Raises ServerError 401 or 429."""
        given = _values(scope, b"authorization")
        if given:
            scheme, _, token = given[0].partition(" ")
            return self._guest_of([token.strip() if scheme.lower() == "bearer" else "", *given[1:]])
        cookies = _cookies(_values(scope, b"cookie"), self._cookie)
        people = [guest for cookie in cookies if (guest := matching(cookie, self._all))]
        if people:
            return people[0]
        if cookies:
            raise self._unauthorized(_NOT_VALID, cookies[0])
        raise self._unauthorized(
            "a token is needed: open the link that you were given, or add ?token= and the server's token"
        )

    @property
    def _all(self) -> Sequence[Guest]:
        return self._known if self._guests is None else (*self._known, *self._guests.current())

    def _guest_of(self, given: list[str]) -> Guest:
        """The guest of the one token that was given."""
        guest = matching(session_of(given[0]), self._all) if len(given) == 1 else None
        if guest is None:
            raise self._unauthorized(_NOT_VALID, session_of(given[0]))
        return guest

    def _unauthorized(self, message: str, wrong: str = "") -> ServerError:
        """401, or 429 for guessing. A page whose token was withdrawn asks often, but with one token."""
        now = self._clock()
        self._wrong = {digest: at for digest, at in self._wrong.items() if now - at < 60}
        if wrong and (digest := digest_of(wrong)) not in self._wrong:
            if len(self._wrong) >= _WRONG_A_MINUTE:
                return busy("wrong tokens", 60)
            self._wrong[digest] = now
        return ServerError(401, "unauthorized", message, headers={"WWW-Authenticate": "Bearer"})

    def _exchanged(self, scope: Scope, token: str, parameters: Iterable[tuple[str, str]]) -> Response:
        """Redirect to the address without the token, which moves into a cookie that scripts cannot read."""
        query = urlencode(list(parameters))
        path = "/" + scope["raw_path"].split(b"?")[0].decode("latin-1").lstrip("/")
        answer = RedirectResponse(self._settings.base_path + path + (f"?{query}" if query else ""), 303)
        answer.set_cookie(
            self._cookie,
            session_of(token),
            max_age=_COOKIE_SECONDS,
            httponly=True,
            samesite="lax",
            secure=scope.get("scheme") == "https",
            path=f"{self._settings.base_path}/",
        )
        answer.headers["Cache-Control"] = "no-store"
        return answer


def scope_of(scopes: Scopes, method: str, path: str) -> str | None:
    """The scope that a request needs; None if only the owner may do it.

    >>> scope_of(SCOPES, "HEAD", "/api/videos/x/file"), scope_of(SCOPES, "DELETE", "/api/collections/1")
    ('read', 'collect')
    """
    above = [place for place in scopes if path == place or (place != "/" and path.startswith(f"{place}/"))]
    needed = scopes[max(above, key=len)] if above else {}
    return needed.get("GET" if method == "HEAD" else method)


def check_scope(guest: Guest, needed: str | None) -> None:
    """Raise ServerError 403 if a guest lacks a scope."""
    if needed in guest.scopes:
        return
    if needed is None:
        raise ServerError(403, "owner_only", "only the owner of this server may do that")
    raise ServerError(
        403,
        "scope_missing",
        f"the token of {guest.name} may {', '.join(in_order(guest.scopes))} but not {needed}; ask whoever "
        "gave it to you for another one",
        field=needed,
    )


def _check_site(scope: Scope) -> None:
    """Refuse requests from pages of other sites. Links to the page may be followed from anywhere."""
    sites = _values(scope, b"sec-fetch-site")
    modes = _values(scope, b"sec-fetch-mode")
    if "cross-site" in sites and not (modes == ["navigate"] and scope["method"] == "GET"):
        raise ServerError(403, "cross_site", "pages of other sites may not use this server")
    # Clients without Sec-Fetch-Site may send Origin. Without either, no browser's page sent the request.
    hosts = [host.lower() for host in _values(scope, b"host")]
    for origin in _values(scope, b"origin"):
        try:
            host = urlsplit(origin).netloc.lower()
        except ValueError:
            raise ServerError(
                400, "bad_origin", "the Origin header is not an address", field="Origin"
            ) from None
        if host not in hosts:
            raise ServerError(403, "cross_site", "pages of other sites may not use this server")


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _host_name(host: str) -> str:
    """The name in a Host header, without its port, in lower case."""
    name, colon, port = host.rpartition(":")
    if colon and port.isdecimal() and (not name.startswith("[") or name.endswith("]")):
        host = name
    return host.strip("[]").lower()


def _cookies(headers: Iterable[str], name: str) -> list[str]:
    """The values of the cookies of a name, at most ten, because each is compared with every guest.

    Our cookies need no quotes. `http.cookies` takes a second for 30,000 quoted backslashes (CVE-2024-7592).
    """
    pairs = (part.strip().partition("=") for header in headers for part in header.split(";"))
    return [value.strip('"') for key, _, value in pairs if key == name][:_MOST_COOKIES]
