"""Checks that an object store refuses a second put of a new key, which every commit of a table relies on.

A table's next version is put with `If-None-Match: *`: of several writers who put the same key, one succeeds
and the others are refused. A store that ignores the header accepts all of them: each silently replaces the
version before, whose data are lost. LanceDB does not notice. So this module tries the store before anything
is written: with four puts at the same time, because a store may check first and write afterwards, and with
one more after them. A store that passes is not tried again in the process, for this endpoint and bucket.

Without an endpoint the store is Amazon's, which has had conditional puts since August 2024 and is not tried.
obstore makes the requests with the keys that LanceDB would use. Profiles are read here, because obstore does
not read them.
"""

from __future__ import annotations

import configparser
import contextlib
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from whenabouts.extras import lacking
from whenabouts.index.records import StoreError

if TYPE_CHECKING:
    from obstore.store import S3Credential, S3Store

_AT_ONCE = 4
_SECONDS = timedelta(seconds=30)
_RETRIES = 4

_passed: set[tuple[str, str]] = set()  # endpoint and bucket


def check_conditional_put(place: str, storage_options: Mapping[str, str] | None) -> None:
    """Raise StoreError if the store of an s3:// place accepts a second put of a key that must be new.

    StoreError is also raised without the extra `objects`, and for a store that answers 501 or cannot be
    reached. The check is skipped if no endpoint is set (Amazon's store), if no keys are found (this check
    cannot use the role of a machine), and if the store passed before.
    """
    options = _options(storage_options)
    endpoint = next((options[name] for name in _ENDPOINTS if options.get(name)), "")
    keys = _keys(options)
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    if not endpoint or keys is None or (endpoint, bucket) in _passed:
        return
    name = f"{prefix.strip('/')}/conditional-put.{os.urandom(6).hex()}"
    if _refuses_second_put(place, endpoint, _store(bucket, endpoint, keys, options), name):
        _passed.add((endpoint, bucket))


def _store(bucket: str, endpoint: str, keys: S3Credential, options: Mapping[str, str]) -> S3Store:
    try:
        from obstore.store import S3Store
    except ModuleNotFoundError as error:
        raise StoreError(f"a new corpus on {endpoint}: {lacking(error) or error}") from error
    return S3Store(
        bucket,
        config={
            "aws_endpoint_url_s3": endpoint,
            "region": options.get("aws_region") or options.get("aws_default_region") or "us-east-1",
            "virtual_hosted_style_request": _is_set(options, "aws_virtual_hosted_style_request"),
            # By default obstore deletes even one key by a bulk request, which some stores lack.
            "disable_bulk_delete": True,
        },
        client_options={"allow_http": _is_set(options, "aws_allow_http"), "timeout": _SECONDS},
        retry_config={"max_retries": _RETRIES},
        credential_provider=lambda: keys,
    )


def _is_set(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() in ("1", "true", "yes")


# Names of the endpoint option, in order of precedence.
_ENDPOINTS = ("aws_endpoint_url_s3", "aws_endpoint_url", "aws_endpoint")


def _options(given: Mapping[str, str] | None) -> dict[str, str]:
    """Options by long name: the given ones, then the environment's, without endpoints if one is given."""
    environment = {key.lower(): value for key, value in os.environ.items() if key.startswith("AWS_")}
    named = {key.lower(): value for key, value in (given or {}).items()}
    long = {key if key.startswith("aws_") else f"aws_{key}": value for key, value in named.items()}
    if any(long.get(name) for name in _ENDPOINTS):
        environment = {key: value for key, value in environment.items() if key not in _ENDPOINTS}
    return environment | long


def _keys(options: Mapping[str, str]) -> S3Credential | None:
    """The keys in the options, else those of the profile in the credentials file; None without either."""
    if options.get("aws_access_key_id") and options.get("aws_secret_access_key"):
        token = options.get("aws_session_token") or options.get("aws_token") or ""
        return _credential(options["aws_access_key_id"], options["aws_secret_access_key"], token)
    profiles = configparser.RawConfigParser()
    place = options.get("aws_shared_credentials_file") or "~/.aws/credentials"
    with contextlib.suppress(OSError, configparser.Error, UnicodeDecodeError, KeyError):
        profiles.read_string(Path(place).expanduser().read_text(encoding="utf-8"))
        profile = profiles[options.get("aws_profile") or "default"]
        token = profile.get("aws_session_token", "")
        return _credential(profile["aws_access_key_id"], profile["aws_secret_access_key"], token)
    return None


def _credential(access: str, secret: str, token: str) -> S3Credential:
    return {"access_key_id": access, "secret_access_key": secret, "token": token or None, "expires_at": None}


def _refuses_second_put(place: str, endpoint: str, store: S3Store, name: str) -> bool:
    """Put one key four times at once and once more, then delete it; True if at most one put was accepted.

    False if a put fails for a reason that LanceDB reports at the first real write (such as 403). Raises
    StoreError if two puts were accepted, for the answer 501, and for a store that cannot be reached.
    """
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError

    start = threading.Barrier(_AT_ONCE)

    def is_accepted() -> bool:
        try:
            obstore.put(store, name, b"", mode="create")
        except AlreadyExistsError:
            return False
        return True

    def is_accepted_with_others(_: int) -> bool:
        start.wait()
        return is_accepted()

    refusal = ""
    accepted, is_accepted_later = 0, False
    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            accepted = sum(pool.map(is_accepted_with_others, range(_AT_ONCE)))
        is_accepted_later = is_accepted()
    except (BaseError, OSError) as error:
        refusal = " ".join(str(error).split())
        if "error sending request" in refusal:
            raise StoreError(
                f"{place}: the store cannot be reached at {endpoint}; check AWS_ENDPOINT and the network"
            ) from error
    with contextlib.suppress(BaseError, OSError):
        obstore.delete(store, name)
    if "501 Not Implemented" in refusal:
        raise StoreError(f"{place}: {_LACKING} (it answers 501); {_REMEDY}")
    if refusal:
        return False
    if is_accepted_later:
        raise StoreError(f"{place}: {_LACKING} (a second put of one key was accepted); {_REMEDY}")
    # `accepted` is 0 if the answer to the accepted put was lost and its repetition was refused.
    if accepted > 1:
        raise StoreError(
            f'{place}: the store has a conditional put ("If-None-Match") that is not atomic ({accepted} of '
            f"{_AT_ONCE} puts of one key at the same time were accepted); {_REMEDY}"
        )
    return True


_LACKING = 'the store has no conditional put ("If-None-Match")'
_REMEDY = (
    "two writers could overwrite each other unseen, so no corpus is written there. Use a store with atomic "
    "conditional puts (Amazon S3, Ceph, MinIO, …), or a folder"
)
