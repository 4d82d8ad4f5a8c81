"""Explains an object store's errors and their remedies."""

from __future__ import annotations

import re

from whenabouts.types import WhenaboutsError

_KEPT = "finished work is kept, and the same command continues it"
_REASONS = {
    "credentials that have expired": (
        {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"},
        f"get new ones (such as with `aws sso login`, or a new AWS_SESSION_TOKEN); {_KEPT}",
    ),
    "clocks that are too far apart": (
        {"RequestTimeTooSkewed", "RequestInTheFuture"},
        "set this machine's clock (S3 allows 15 minutes); check it with `date -u`",
    ),
    "credentials that the store does not know": (
        {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidClientTokenId", "401"},
        "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or the profile in AWS_PROFILE",
    ),
    "a bucket that does not exist": (
        {"NoSuchBucket", "PermanentRedirect", "AuthorizationHeaderMalformed", "301"},
        "check its name, AWS_REGION, and AWS_ENDPOINT for a store that is not Amazon's; or make it first",
    ),
    "storage that is full": (
        {"QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "InsufficientCapacity", "507"},
        f"make room, or raise the quota; {_KEPT}",
    ),
    "no permission": (
        {"AccessDenied", "AllAccessDisabled", "AccountProblem", "403", "MethodNotAllowed", "405"},
        "these credentials need to list, read, put and delete in this place (to search: list and read); "
        "the clock of this machine may be wrong too; " + _KEPT,
    ),
    "a store that is overloaded or away": (
        {"SlowDown", "ServiceUnavailable", "InternalError", "429", "500", "502", "503", "504", "Timeout"},
        f"try again later; {_KEPT}",
    ),
}
_BY_CODE = {code.lower(): (reason, remedy) for reason, (codes, remedy) in _REASONS.items() for code in codes}
# An answer without a body (to HEAD) has only a status.
_CODE = re.compile(r"(?:<Code>|AWS Error |ExceptionName: )(\w{3,60})")
_STATUS = re.compile(r"\bstatus(?: code)?:? (\d{3})\b", re.IGNORECASE)
_UNREACHED = re.compile(
    r"error sending request|HttpError|NETWORK_CONNECTION|dns error|Connection refused|curlCode|body error"
)
_UNSAFE_HTTP = re.compile(r"URL scheme is not allowed|BadScheme")


class StoreAway(WhenaboutsError):
    """A store or disk refused to be read or was away, so the file is not at fault."""


def why_refused(text: str) -> str | None:
    """The reason and the remedy if an error's text comes from a store, else None.

    >>> why_refused("Server returned status code: 503 Service Unavailable: ").partition(";")[0]
    'a store that is overloaded or away (503): try again later'
    """
    for match in (*_CODE.finditer(text), *_STATUS.finditer(text)):
        if answer := _BY_CODE.get(match[1].replace("_", "").lower()):
            return f"{answer[0]} ({match[1]}): {answer[1]}"
    if "HTTP status 400" in text and "No response body" in text:
        return "a refusal without a reason (400), as for credentials that have expired: get new ones"
    if _UNSAFE_HTTP.search(text):
        return "http:// without encryption is refused: use https://, or set AWS_ALLOW_HTTP=true"
    if _UNREACHED.search(text):
        return f"a store that cannot be reached, or hangs up: check AWS_ENDPOINT and the network; {_KEPT}"
    return None
