"""Guests of a server: users with their own tokens, and what each token may do.

The owner chooses the file. It is never in a corpus, because the author of a corpus could admit themselves.
It stores hashes, from which neither token nor cookie can be computed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

from whenabouts.intake.opening import read_regular
from whenabouts.types import UsageError
from whenabouts.video.aside import written_aside
from whenabouts.video.files import with_home
from whenabouts.workplace.collections import checked_name

READ, INDEX, COLLECT, JUDGE = "read", "index", "collect", "judge"
SCOPES = {
    READ: "search, watch, read, export",
    COLLECT: "also change collections and saved searches",
    INDEX: "also add videos (serve --allow), name and forget people (serve --change-people)",
    JUDGE: "judge moments at `whenabouts judge`, under the guest's name",
}
MOST_GUESTS = 1_000
_MOST_BYTES = 1 << 20  # `MOST_GUESTS` with the longest names and all scopes take 1,008,019
_LATEST = 1e11  # seconds since 1970 (the year 5138); `time.localtime` overflows at far greater ones
_WAIT_SECONDS = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Guest:
    """A guest. `made` is in seconds since 1970; `digest` is the hash of the session (`digest_of`)."""

    name: str
    scopes: frozenset[str]
    made: float
    digest: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "scopes": in_order(self.scopes), "made": self.made}


def in_order(scopes: Iterable[str]) -> list[str]:
    """Scopes in the order in which they are documented."""
    given = set(scopes)
    return [scope for scope in SCOPES if scope in given]


def session_of(token: str) -> str:
    """The cookie's value for a token. The token cannot be computed from it."""
    key = token.encode("utf-8", "replace")
    if len(key) > blake2b.MAX_KEY_SIZE:
        key = blake2b(key).digest()
    return blake2b(b"whenabouts session", key=key, digest_size=24).hexdigest()


def digest_of(session: str) -> str:
    """The hash of a cookie's value, for the file. Neither cookie nor token can be computed from it."""
    return sha256(session.encode("utf-8", "replace")).hexdigest()


def owner_of(token: str) -> Guest:
    """The owner as a guest: without a name, with all scopes."""
    return Guest("", frozenset(SCOPES), 0.0, digest_of(session_of(token)))


def matching(session: str, guests: Iterable[Guest]) -> Guest | None:
    """The guest of a cookie's value. Compares in constant time."""
    digest = digest_of(session)
    same = [guest for guest in guests if hmac.compare_digest(digest, guest.digest)]
    return same[0] if same else None


class Guests:
    """The guests in a file. Changes are atomic; a server sees them at its next request."""

    def __init__(self, path: Path) -> None:
        self.path = with_home(path)
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] | None = None
        self._current: Sequence[Guest] = ()

    def listed(self) -> list[Guest]:
        """All guests, by name. Raises UsageError if the file cannot be read or is invalid."""
        try:
            document = json.loads(read_regular(self.path, _MOST_BYTES))
            return sorted((_guest_of(entry) for entry in document["guests"]), key=lambda each: each.name)
        except OSError as error:
            remedy = "name another file, or check its permissions"
            if isinstance(error, FileNotFoundError):
                remedy = "`whenabouts guests FILE add NAME` creates one"
            raise UsageError(
                f"{self.path}: the file of guests cannot be read ({error.strerror}); {remedy}"
            ) from None
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise UsageError(f"{self.path} is not a file of guests ({error}); name another file") from None

    def current(self) -> Sequence[Guest]:
        """The guests admitted now; nobody while the file cannot be read. Reads the file if it has changed."""
        try:
            status = self.path.stat()
            seen = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        except OSError:
            seen = None
        with self._lock:
            if seen != self._seen:
                try:
                    self._current = self.listed()
                except UsageError as error:
                    _log.warning("no guest is admitted: %s", error)
                    self._current = ()
                self._seen = seen
            return self._current

    def add(self, name: str, scopes: Iterable[str] = ()) -> str:
        """Add a guest and return its token, which is not stored. All scopes except `judge` include `read`.

        Raises UsageError for a taken or invalid name, an unknown scope, and with `MOST_GUESTS` guests.
        """
        name, granted = checked_name(name), set(scopes) or {READ}
        if unknown := sorted(granted - SCOPES.keys()):
            raise UsageError(f"{unknown[0]!r} is not a scope; choose from {', '.join(SCOPES)}")
        if granted - {JUDGE}:
            granted.add(READ)
        token = secrets.token_urlsafe(24)
        with self._changing() as guests:
            if any(guest.name == name for guest in guests):
                raise UsageError(
                    f"{name!r} is a guest already; remove that one first, or choose another name"
                )
            if len(guests) >= MOST_GUESTS:
                raise UsageError(f"{self.path} has {MOST_GUESTS} guests; remove one first")
            guests.append(Guest(name, frozenset(granted), time.time(), digest_of(session_of(token))))
        return token

    def remove(self, name: str) -> None:
        """Revoke a guest's token. Raises UsageError for an unknown name."""
        with self._changing() as guests:
            kept = [guest for guest in guests if guest.name != name.strip()]
            if len(kept) == len(guests):
                present = ", ".join(repr(guest.name) for guest in guests) or "no guests"
                raise UsageError(f"no guest is called {name[:200]!r}; the file has {present}")
            guests[:] = kept

    @contextlib.contextmanager
    def _changing(self) -> Iterator[list[Guest]]:
        """The guests as a list that is written back at the end, under the lock."""
        path = Path(os.path.realpath(self.path))  # a link keeps its name, and its file is changed
        with _locked(path.parent):
            guests = self.listed() if path.exists() else []
            yield guests
            entries = [guest.to_json() | {"digest": guest.digest} for guest in guests]
            text = json.dumps({"guests": entries}, indent=1, ensure_ascii=False) + "\n"
            with written_aside(path, force=True) as aside:
                aside.chmod(0o600)
                aside.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock. Raises UsageError if the folder is missing or stays locked."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{folder}: cannot store guests there ({error.strerror})") from None
    try:
        until = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise UsageError(f"{folder}: another command is changing it; try again") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _guest_of(entry: Any) -> Guest:
    name, scopes, made, digest = (entry[key] for key in ("name", "scopes", "made", "digest"))
    is_time = isinstance(made, int | float) and 0 <= made <= _LATEST
    is_hash = isinstance(digest, str) and digest.isascii() and len(digest) == 2 * sha256().digest_size
    if not (is_time and is_hash and isinstance(name, str) and checked_name(name) == name):
        raise ValueError(f"the guest {str(name)[:100]!r} has an invalid name, time or hash")
    if not isinstance(scopes, list) or not set(scopes) <= SCOPES.keys():
        raise ValueError(f"the scopes of {name!r} are not among {', '.join(SCOPES)}")
    return Guest(name, frozenset(scopes), float(made), digest)
