"""Settings of a server: its address, its token, its limits."""

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
from whenabouts.workplace.cached import default_cache

DEFAULT_PORT = 8765
DEFAULT_CACHE_BYTES = 2 << 30
SHORTEST_TOKEN = 16
TOKEN_VARIABLE = "WHENABOUTS_TOKEN"
_PLAIN = re.compile(r"[A-Za-z0-9_.-]*")
_BASE_PATH = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*")

# Names of this machine. A request under another name that resolves here is DNS rebinding.
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the server does at once; further requests are refused (429, for lack of memory 503).

    - `searches`, `reads`, `thumbnails`, `clips` and `checks` may run at a time; `…_waiting` more may
      wait, for at most `wait_seconds`.
    - `files`: video files sent at a time; `clips_a_minute`: new clips begun in a minute.
    - `job_seconds`: the most a search or read may take; `check_seconds`: the most a check may take.
    - `memory_bytes`: memory of the process with its decoder processes.
    - `body_bytes`: size of a request's body; `picture_bytes`: that of a search, which may hold a picture.
    - `head_seconds`, `stall_seconds`: how long a client may take to send its request, or stop reading its
      answer; `graceful_seconds`: how long running requests may take when the server stops.
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
    """Settings of a server.

    Raises UsageError for bad values, such as a short token, or no token at an address that other machines can
    reach.

    - `cache`: folder for thumbnails and clips.
    - `models`: name -> folder or hub name of a trained system; clients use the names and cannot open
      others.
    - `files`: folders or files whose videos are served; empty: those that were indexed.
    - `allow`: folders that clients may list, index and watch; empty: clients add nothing.
    - `show_paths`: whether clients may see file paths; None: only if only users of this machine can
      connect, that is, at a loopback address without a token (a server behind a proxy needs one).
    - `change_people`: whether clients may name, merge and forget people; None: as for `show_paths`.
    - `check`: the checker that clients may use, "" for none; `send_frames` allows it on another machine.
    - `rerank`, `rewrite`: models that clients may use, "" for none; `send_query` allows the rewriter on
      another machine.
    - `guests`: file of users with their own tokens (`workplace.guests`).
    - `base_path`: path such as "/moments" under which a proxy shows the server; "" for none.
    - `proxies`: addresses or networks whose X-Forwarded-Host and X-Forwarded-Proto are believed.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token: str = field(default="", repr=False)
    cache: Path = field(default_factory=default_cache)
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
            raise UsageError(f"port {self.port}: give a number from 1 to 65535, or 0 for any free port")
        if self.cache_bytes < 1 << 20:
            raise UsageError(f"a cache of {self.cache_bytes} bytes is too small; give 1 MB or more")
        if self.token and (len(self.token) < SHORTEST_TOKEN or not _PLAIN.fullmatch(self.token)):
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
        """Whether clients may see file paths of this machine."""
        return self._is_private if self.show_paths is None else self.show_paths

    @property
    def changes_people(self) -> bool:
        """Whether clients may change people."""
        return self._is_private if self.change_people is None else self.change_people

    @property
    def proxy_networks(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """`proxies` as networks. Raises UsageError for anything else."""
        try:
            return tuple(ipaddress.ip_network(proxy) for proxy in self.proxies)
        except ValueError as error:
            raise UsageError(f"--trust-proxy: {error}; give an address such as 127.0.0.1") from None

    @property
    def _is_private(self) -> bool:
        """Whether only users of this machine can connect."""
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


def named_models(places: Sequence[str]) -> dict[str, str]:
    """Trained systems by folder name, which clients use. Raises UsageError if two share a name."""
    named: dict[str, str] = {}
    for place in places:
        name = Path(place).name or place
        if name in named:
            raise UsageError(
                f"--model {place}: {named[name]} has the name {name!r} as well; rename one of them"
            )
        named[name] = place
    return named
