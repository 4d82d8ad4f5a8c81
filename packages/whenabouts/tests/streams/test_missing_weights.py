"""A stream whose weights are not here says what to do about it, and asks no network; every stream does."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import NoReturn

import pytest

from whenabouts.encoders import EncoderUnavailable
from whenabouts.streams import all_streams, stream


@pytest.mark.parametrize("name", sorted(all_streams()))
def test_weights_that_are_not_here_are_an_error_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(EncoderUnavailable, match="owner/none") as caught:
        stream(name).open_encoder("owner/none")
    assert "\n" not in str(caught.value)
