"""Changes untrusted texts so that sentence-transformers reads them neither as media nor as special tokens.

The library takes a text such as "https://host/a.jpg", "data:image/..." or "/etc/photo.png" for a picture,
film or sound, and fetches or opens it if the model accepts such. A special token in a text ("<|im_end|>",
"[SEP]") would be one for the model, too, and could end the text early. Texts come from videos and queries,
which are untrusted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

# Wider than the library's rules, which spaces around a text escape: what begins like a URL or ends in a
# suffix.
_LIKE_MEDIA = re.compile(r"\s*(?:https?:|data:|file:)|.*\.\w{2,5}\s*\Z", re.IGNORECASE | re.DOTALL)


def special_tokens(model: Any) -> tuple[str, ...]:
    """The special tokens of a loaded model's tokenizer, the longest first."""
    tokenizer = getattr(model, "tokenizer", None)
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)  # a processor wraps the tokenizer
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    tokens = {str(token) for token in added if getattr(token, "special", True)}
    tokens |= set(getattr(tokenizer, "all_special_tokens", ()))
    divisible = (token for token in tokens if len(token) > 1)
    return tuple(sorted(divisible, key=lambda token: (-len(token), token)))


def plain_texts(texts: Sequence[str], special: Collection[str] = ()) -> list[str]:
    """The texts; those that look like media get spaces around them, special tokens a space inside.

    >>> plain_texts(["a red door", "http://127.0.0.1/a.jpg", "say [SEP] now"], ["[SEP]"])
    ['a red door', ' http://127.0.0.1/a.jpg ', 'say [ SEP] now']
    """
    return [_plain(text, special) for text in texts]


def _plain(text: str, special: Collection[str]) -> str:
    for token in special:
        text = text.replace(token, f"{token[0]} {token[1:]}")
    return f" {text} " if _LIKE_MEDIA.match(text) else text
