"""What a store answers, in words with a remedy; what is no answer of a store is none."""

from __future__ import annotations

import pytest

from whenabouts.intake.remote_faults import why_refused

# As LanceDB 0.40 and pyarrow 26 put it.
LANCE = "Generic S3 error: Server returned non-2xx status code: {}: <Error><Code>{}</Code></Error>"
PYARROW = "When reading information for key 'k' in bucket 'b': AWS Error {} during HeadObject operation: "


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LANCE.format("403 Forbidden", "SignatureDoesNotMatch"), "the store does not know"),
        (LANCE.format("403 Forbidden", "QuotaExceeded"), "storage that is full"),
        (LANCE.format("403 Forbidden", "SomethingNew"), "no permission (403)"),
        (LANCE.format("507 Insufficient Storage", "X"), "storage that is full (507)"),
        (LANCE.format("404 Not Found", "NoSuchBucket"), "a bucket that does not exist"),
        (LANCE.format("503 Service Unavailable", "SlowDown"), "overloaded or away"),
        (PYARROW.format("ACCESS_DENIED"), "no permission"),
        (PYARROW.format("EXPIRED_TOKEN"), "have expired"),
        (PYARROW.format("NETWORK_CONNECTION"), "cannot be reached"),
        (PYARROW.format("UNKNOWN (HTTP status 400)") + "No response body.", "(400)"),
        (PYARROW.format("UNKNOWN (HTTP status 503)") + "No response body.", "overloaded or away (503)"),
        ("builder error: URL scheme is not allowed", "AWS_ALLOW_HTTP=true"),
        ("HTTP error: error sending request", "cannot be reached, or hangs up"),
    ],
)
def test_each_answer_has_its_reason(text: str, reason: str) -> None:
    assert reason in (why_refused(text) or "")


@pytest.mark.parametrize(
    "text", ["", "not found", LANCE.format("404 Not Found", "NoSuchKey"), "row 503 of 504"]
)
def test_what_is_no_refusal_has_none(text: str) -> None:
    assert why_refused(text) is None
