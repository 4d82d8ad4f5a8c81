"""Check that an object store has the conditional put that every commit of a table rests on.

A table's next version is put with `If-None-Match: *`: of several writers who put the same key, one succeeds
and the others get an error. A store that ignores the header accepts all of them, and each overwrites the
version before without a word. LanceDB cannot detect this, so it is tried once in a process, before anything
is written: four puts at once, because a store may check first and write afterwards, and one more after them.

Amazon's own store supports it (since August 2024) and is not asked. The request is signed with Signature
Version 4 (https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html), with the keys that
LanceDB would use: named ones, those of the environment, or those of a file of profiles.
"""

from __future__ import annotations

import configparser
import contextlib
import hashlib
import hmac
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

from whenabouts.index.records import StoreError

_AT_ONCE = 4
_SECONDS = 30.0
_TAKEN = frozenset((409, 412))
# Statuses of temporary faults, after which a request is repeated.
_AWAY = frozenset((429, 500, 502, 503, 504))
_ATTEMPTS = 5

_kept_promise: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True)
class _Keys:
    """An access key, its secret, and the token of temporary keys."""

    access: str
    secret: str
    token: str = ""


def check_conditional_put(place: str, storage_options: Mapping[str, str] | None) -> None:
    """Raise StoreError if the store of an s3:// place accepts a second put of a key that must be new.

    Nothing is asked if the store is Amazon's own or no keys are found (with a machine's role the request
    cannot be signed here).
    """
    options = _options(storage_options)
    endpoint = next((options[name] for name in _ENDPOINTS if options.get(name)), "")
    keys = _keys(options)
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    if not endpoint or keys is None or (endpoint, bucket) in _kept_promise:
        return
    is_virtual = options.get("aws_virtual_hosted_style_request", "").lower() in ("1", "true", "yes")
    base = endpoint.rstrip("/") + ("" if is_virtual else f"/{bucket}")
    name = f"{prefix.strip('/')}/conditional-put.{os.urandom(6).hex()}"
    url = f"{base}/{quote(name, safe='/-._~')}"
    region = options.get("aws_region") or options.get("aws_default_region") or "us-east-1"
    _try(place, lambda method: _ask(method, url, region, keys))
    _kept_promise.add((endpoint, bucket))


# The first that is set counts.
_ENDPOINTS = ("aws_endpoint_url_s3", "aws_endpoint_url", "aws_endpoint")


def _options(given: Mapping[str, str] | None) -> dict[str, str]:
    """Options by their long names: the environment's, overridden by the given ones."""
    environment = {key.lower(): value for key, value in os.environ.items() if key.startswith("AWS_")}
    named = {key.lower(): value for key, value in (given or {}).items()}
    long = {key if key.startswith("aws_") else f"aws_{key}": value for key, value in named.items()}
    if any(long.get(name) for name in _ENDPOINTS):
        environment = {key: value for key, value in environment.items() if key not in _ENDPOINTS}
    return environment | long


def _keys(options: Mapping[str, str]) -> _Keys | None:
    """The named keys, or those of the profile; None without either."""
    if options.get("aws_access_key_id") and options.get("aws_secret_access_key"):
        token = options.get("aws_session_token") or options.get("aws_token") or ""
        return _Keys(options["aws_access_key_id"], options["aws_secret_access_key"], token)
    profiles = configparser.RawConfigParser()
    place = options.get("aws_shared_credentials_file") or "~/.aws/credentials"
    with contextlib.suppress(OSError, configparser.Error, UnicodeDecodeError, KeyError):
        profiles.read_string(Path(place).expanduser().read_text(encoding="utf-8"))
        keys = profiles[options.get("aws_profile") or "default"]
        token = keys.get("aws_session_token", "")
        return _Keys(keys["aws_access_key_id"], keys["aws_secret_access_key"], token)
    return None


def _try(place: str, ask: Callable[[str], int]) -> None:
    """Put one key four times at once and once more; `ask` makes a request and returns the status."""
    start = threading.Barrier(_AT_ONCE)

    def put(_: int) -> int:
        start.wait()
        return ask("PUT")

    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            first = list(pool.map(put, range(_AT_ONCE)))
        later = ask("PUT")
    except OSError as error:
        raise StoreError(f"{place}: the store cannot be reached: {error}") from error
    with contextlib.suppress(OSError):
        ask("DELETE")
    refused = next((status for status in (*first, later) if status >= 300 and status not in _TAKEN), None)
    if refused == 501:
        raise StoreError(f"{place}: {_LACKING} (it answers 501); {_REMEDY}")
    if refused is not None:
        return  # LanceDB reports the reason with the first real write
    # `taken` may be 0: if the answer to the accepted put was lost, its repetition was refused.
    taken = sum(status < 300 for status in first)
    if later < 300:
        raise StoreError(f"{place}: {_LACKING} (a second put of one key was taken); {_REMEDY}")
    if taken > 1:
        raise StoreError(
            f"{place}: {_LACKING} when several ask at once ({taken} of {_AT_ONCE} puts of one key were "
            f"taken); {_REMEDY}"
        )


_LACKING = 'the store has no conditional put ("If-None-Match")'
_REMEDY = (
    "two writers could overwrite each other unseen, so no corpus is written there. Use a store that has it "
    "(Amazon S3, Ceph, MinIO, …), or a folder"
)


def _ask(method: str, url: str, region: str, keys: _Keys) -> int:
    """The status of a signed request without a body, repeated after temporary faults."""
    for attempt in range(_ATTEMPTS):
        request = urllib.request.Request(url, b"" if method == "PUT" else None, method=method)
        for name, value in _signed(method, url, region, keys).items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in _AWAY or attempt == _ATTEMPTS - 1:
                return error.code
        except OSError:
            if attempt == _ATTEMPTS - 1:
                raise
        time.sleep(0.1 * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


def _signed(method: str, url: str, region: str, keys: _Keys) -> dict[str, str]:
    """Headers of a request signed with Signature Version 4."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    parts = urlsplit(url)
    empty = hashlib.sha256(b"").hexdigest()
    headers = {"host": parts.netloc, "x-amz-content-sha256": empty, "x-amz-date": now}
    if method == "PUT":
        headers["if-none-match"] = "*"
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = f"{method}\n{parts.path}\n\n{lines}\n{names}\n{empty}"
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{keys.secret}".encode()
    for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}"):
        key = hmac.digest(key, part.encode(), "sha256")
    credential = f"Credential={keys.access}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    return {**headers, "Authorization": f"AWS4-HMAC-SHA256 {credential}"}
