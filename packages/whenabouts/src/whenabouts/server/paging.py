"""Page tokens: an answer and the offset of its next page, signed so that no other answer accepts them."""

from __future__ import annotations

import base64
import binascii
import hmac
from hashlib import blake2b

from whenabouts.corpus import Corpus
from whenabouts.server.errors import ServerError

_SIGNATURE_BYTES = 12
_OFFSET_BYTES = 4


class Pages:
    """Makes and reads the tokens of one corpus. `secret`: any bytes that differ between corpora."""

    def __init__(self, secret: bytes) -> None:
        self._key = blake2b(secret, digest_size=32).digest()

    def subject(self, corpus: Corpus, request: str) -> str:
        """What a token belongs to: a request, and the corpus as it is now."""
        return f"{corpus.version} {request}"

    def token(self, subject: str, offset: int) -> str:
        """The token of the page that starts at `offset` of the answer to `subject`."""
        place = offset.to_bytes(_OFFSET_BYTES, "big")
        return base64.urlsafe_b64encode(place + self._signature(subject, place)).decode()

    def offset(self, subject: str, token: str) -> int:
        """The offset of the page. Raises ServerError 400 for a damaged token or one of another answer."""
        try:
            raw = base64.b64decode(token, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        place, signature = raw[:_OFFSET_BYTES], raw[_OFFSET_BYTES:]
        if len(raw) != _OFFSET_BYTES + _SIGNATURE_BYTES or not hmac.compare_digest(
            signature, self._signature(subject, place)
        ):
            raise ServerError(
                400,
                "invalid_page_token",
                "this page token is damaged, or belongs to another query, or to the corpus before a change; "
                "ask again without it",
                field="page_token",
            )
        return int.from_bytes(place, "big")

    def _signature(self, subject: str, place: bytes) -> bytes:
        text = place + subject.encode("utf-8", "surrogatepass")
        return blake2b(text, key=self._key, digest_size=_SIGNATURE_BYTES).digest()
