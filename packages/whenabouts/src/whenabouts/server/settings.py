"""Settings of a server: its address, its token, and how much it does at once."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from whenabouts.resident import machine_bytes
from whenabouts.types import UsageError

DEFAULT_PORT = 8765
DEFAULT_CACHE_BYTES = 2 << 30
SHORTEST_TOKEN = 16
TOKEN_VARIABLE = "WHENABOUTS_TOKEN"
_BASE_PATH = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*")

# Names of the machine itself; a page of another name that resolves here is DNS rebinding.
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is done at once; further requests are refused (429).

    `searches`, `reads`, `thumbnails` and `clips` are how many run at one time, `…_waiting` how many may
    wait; `files` is how many video files are sent at one time. `clips_a_minute` is how many new
    clips may be begun in a minute, `wait_seconds` how long a job waits at most, `job_seconds` how long a
    search or a read takes at most. The body of a request may have `body_bytes`, that of a search, which may
    bring a picture, `picture_bytes`. `memory_bytes` is how much memory the process may have, together with
    those that decode for it: requests that could exceed it are refused.
    """

    searches: int = field(default_factory=lambda: max(2, min(8, os.cpu_count() or 2)))
    searches_waiting: int = 100
    reads: int = 2
    reads_waiting: int = 100
    thumbnails: int = 2
    thumbnails_waiting: int = 200
    clips: int = 1
    clips_waiting: int = 8
    checks: int = 2
    checks_waiting: int = 8
    check_seconds: float = 30.0
    clips_a_minute: int = 30
    files: int = 64
    wait_seconds: float = 30.0
    job_seconds: float = 60.0
    memory_bytes: int = field(default_factory=lambda: machine_bytes() * 3 // 4)
    body_bytes: int = 64 << 10
    picture_bytes: int = 9 << 20
    head_seconds: float = 15.0
    stall_seconds: float = 30.0
    graceful_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Address, token, the folder for what is made on demand, and the trained systems that may be asked for.

    `models` is name -> folder or hub's name: clients name what is served here, and nothing else is opened.
    `files` are the folders (or files) whose videos are served; none: those that were indexed.
    `allow` are the folders that clients may list, index and watch; none: they add nothing.
    `show_paths`: whether clients may see where files lie; None: where only people at this machine can ask,
    which is at a loopback address without a token (what comes through a proxy needs one).
    `change_people`: whether clients may name, merge and forget people; None: where `show_paths` would be.
    `check` is the one checker that clients may have moments looked at by, "" for none; `send_frames` lets it
    be on another machine. `rerank` and `rewrite` are the models that clients may ask for, "" for none;
    `send_query` lets the rewriter be on another machine.
    `guests` is the file of people with tokens of their own (`workplace.guests`). `base_path` is the address,
    such as "/moments", below which a proxy shows the server; "" for none. `proxies` are the addresses or
    networks of proxies: their X-Forwarded-Host and X-Forwarded-Proto are believed, and nobody else's.
    Raises UsageError for an address other than this machine's own without a token, and for a token that
    could be guessed.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token: str = field(default="", repr=False)
    cache: Path = field(default_factory=lambda: default_cache())
    cache_bytes: int = DEFAULT_CACHE_BYTES
    models: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    files: tuple[Path, ...] = ()
    allow: tuple[Path, ...] = ()
    show_paths: bool | None = None
    change_people: bool | None = None
    limits: Limits = field(default_factory=Limits)
    check: str = field(default="", repr=False)
    send_frames: bool = False
    rerank: str = field(default="", repr=False)
    rewrite: str = field(default="", repr=False)
    send_query: bool = False
    guests: Path | None = None
    base_path: str = ""
    proxies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.limits.job_seconds < float("inf"):
            raise UsageError(f"--time-limit {self.limits.job_seconds:g}: give seconds, more than 0")
        if self.limits.memory_bytes < 1 << 20:
            raise UsageError(f"{self.limits.memory_bytes} bytes of memory are too few; give --memory in MB")
        if not 0 <= self.port <= 65535:
            raise UsageError(f"port {self.port}: give a number from 0 (any that is free) to 65535")
        if self.cache_bytes < 1 << 20:
            raise UsageError(f"a cache of {self.cache_bytes} bytes is too small; give 1 MB or more")
        if self.token and (len(self.token) < SHORTEST_TOKEN or not _is_plain(self.token)):
            raise UsageError(
                f"the token must be at least {SHORTEST_TOKEN} letters, digits, '-', '_' or '.'; "
                "`openssl rand -hex 16` makes one"
            )
        if not self.token and not self.is_loopback:
            raise UsageError(
                f"{self.host} can be reached from other machines: give --token or set {TOKEN_VARIABLE} "
                "(`openssl rand -hex 16` makes one), or stay with 127.0.0.1"
            )
        if not _BASE_PATH.fullmatch(self.base_path):
            raise UsageError(
                f"--base-path {self.base_path}: give the address below the host, such as /moments"
            )
        for needs, given in (("--guests", self.guests), ("--trust-proxy", self.proxies)):
            if given and not self.token:
                raise UsageError(
                    f"{needs} needs a token of your own (--token-file, {TOKEN_VARIABLE}): without one, "
                    "whoever reaches the server may do everything"
                )
        _ = self.proxy_networks

    @property
    def shows_paths(self) -> bool:
        """Whether clients may see where files lie on this machine."""
        return self._is_private if self.show_paths is None else self.show_paths

    @property
    def changes_people(self) -> bool:
        """Whether clients may change who people are."""
        return self._is_private if self.change_people is None else self.change_people

    @property
    def proxy_networks(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """`proxies` as networks. Raises UsageError for what is no address."""
        try:
            return tuple(ipaddress.ip_network(proxy) for proxy in self.proxies)
        except ValueError as error:
            raise UsageError(f"--trust-proxy: {error}; give an address such as 127.0.0.1") from None

    @property
    def _is_private(self) -> bool:
        """Whether only people at this machine can ask."""
        return self.is_loopback and not self.token

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False


def default_cache() -> Path:
    """The folder for thumbnails and clips, as the XDG base directories say."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    return base / "whenabouts" / "serve"


def named_models(places: Sequence[str]) -> dict[str, str]:
    """Trained systems by the name that clients use: the folder's own. UsageError where two have one name."""
    named: dict[str, str] = {}
    for place in places:
        name = Path(place).name or place
        if name in named:
            raise UsageError(
                f"--model {place}: {named[name]} has the name {name!r} as well; rename one of them"
            )
        named[name] = place
    return named


def _is_plain(token: str) -> bool:
    return token.isascii() and all(letter.isalnum() or letter in "-_." for letter in token)
