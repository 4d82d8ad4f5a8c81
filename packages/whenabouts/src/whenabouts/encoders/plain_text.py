"""Text for models of sentence-transformers: words of strangers that stay words.

The library takes a text such as "https://host/a.jpg", "data:image/..." or "/etc/photo.png" for a picture, and
fetches or opens it if the model takes pictures. A special token in a text ("<|im_end|>", "[SEP]") ends its
part of the model's input. Texts come from videos and from queries, so neither may happen.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

# The library's rules: a URL begins the text and has no space; a path ends with the suffix of a medium.
_LIKE_MEDIA = re.compile(r"\s*(?:https?:|data:|file:)|.*\.\w{2,5}\s*\Z", re.IGNORECASE | re.DOTALL)


def special_tokens(model: Any) -> tuple[str, ...]:
    """The special tokens of a loaded model's tokenizer, the longest first."""
    tokenizer = getattr(model, "tokenizer", None)
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)  # a processor holds one
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    tokens = {str(token) for token in added if getattr(token, "special", True)}
    tokens |= set(getattr(tokenizer, "all_special_tokens", ()))
    return tuple(
        sorted((token for token in tokens if len(token) > 1), key=lambda token: (-len(token), token))
    )


def plain_texts(texts: Sequence[str], special: Collection[str] = ()) -> list[str]:
    """The texts, changed only where the library or the tokenizer would take them for more than words.

    >>> plain_texts(["a red door", "http://127.0.0.1/a.jpg", "say [SEP] now"], ["[SEP]"])
    ['a red door', ' http://127.0.0.1/a.jpg ', 'say [ SEP] now']
    """
    return [_plain(text, special) for text in texts]


def _plain(text: str, special: Collection[str]) -> str:
    for token in special:
        text = text.replace(token, f"{token[0]} {token[1:]}")
    return f" {text} " if _LIKE_MEDIA.match(text) else text
