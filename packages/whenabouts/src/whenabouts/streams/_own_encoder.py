"""The encoder of streams whose clips have vectors and no words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whenabouts.index.stream import Setup


def own_encoder(setup: Setup, keyword: str, opens: Callable[[str], Any], default: str = "") -> Any:
    """The encoder that the option names or gives, else the corpus's, or None.

    An option that is a switch (True) means the corpus's encoder, or else the `default`.
    """
    choice, info = setup.options.get(keyword), setup.info
    if choice is True:
        choice = None if info is not None else default
    if choice is not None and choice is not False:
        return setup.encoders.adopt(opens(choice) if isinstance(choice, str) else choice, info)
    return None if info is None else setup.encoders.encoder_of(info)
