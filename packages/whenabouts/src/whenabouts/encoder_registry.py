"""The encoders of a corpus: opened by name on first use, cached, and checked against its streams."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from whenabouts.encoders import DEFAULT_TEXT_ENCODER, EncoderUnavailable, TokenEncoder, open_text_encoder
from whenabouts.index.records import StreamInfo
from whenabouts.streams import stream
from whenabouts.types import WhenaboutsError

if TYPE_CHECKING:
    from whenabouts.encoders.protocol import TextEncoder
    from whenabouts.index.store import Store

AnyEncoder = TypeVar("AnyEncoder", bound="TextEncoder")


@dataclass(frozen=True, slots=True)
class StreamCheck:
    """Whether a stream can be searched: encoder with dimensions, problem ("": none), remedy or error."""

    name: str
    made_by: str
    problem: str = ""
    remedy: str = ""


class EncoderRegistry:
    """Opens the encoders that made a corpus, or uses given ones.

    The vectors of a stream and of a query must come from one encoder; a different one raises EncoderMismatch.
    """

    def __init__(self, store: Store, encoders: Iterable[TextEncoder] = ()) -> None:
        self._store = store
        self._encoders: dict[str, TextEncoder] = {encoder.fingerprint: encoder for encoder in encoders}

    def beside(self, store: Store) -> EncoderRegistry:
        """A registry for another handle on the corpus that shares these encoders."""
        registry = EncoderRegistry(store)
        registry._encoders = self._encoders
        return registry

    def encoder_of(self, info: StreamInfo) -> TextEncoder:
        """The encoder of a stream, opened at first use. Raises EncoderUnavailable, EncoderMismatch."""
        if info.fingerprint in self._encoders:
            return self._encoders[info.fingerprint]
        try:
            encoder: TextEncoder = stream(info.name).open_encoder(info.encoder)
        except EncoderUnavailable as error:
            raise EncoderUnavailable(
                f"{self._store.place}: stream {info.name} was made with {info.encoder}, "
                f"which cannot be used here: {error}"
            ) from error
        return self.adopt(encoder, info)

    def by_name(self, name: str | None) -> TextEncoder:
        """The encoder of that name (None: the offline default), opened if new. Raises EncoderUnavailable."""
        for encoder in self._encoders.values():
            if encoder.name == (name or DEFAULT_TEXT_ENCODER):
                return encoder
        return self.adopt(open_text_encoder(name), None)

    def of_tokens(self, first: Collection[str]) -> Iterator[TextEncoder]:
        """The usable encoders that also give features of word pieces; those of streams `first` come first."""
        for name, info in sorted(self._store.streams.items(), key=lambda item: item[0] not in first):
            if info.dimension and stream(name).meets:
                with suppress(WhenaboutsError):
                    encoder = self.encoder_of(info)
                    if isinstance(encoder, TokenEncoder):
                        yield encoder

    def for_queries(self) -> dict[str, TextEncoder]:
        """The encoder of each stream that has vectors and meets queries. Raises as `encoder_of` does."""
        usable, broken = self.usable()
        if broken:
            raise next(iter(broken.values()))
        return usable

    def usable(self) -> tuple[dict[str, TextEncoder], dict[str, WhenaboutsError]]:
        """The encoders of the streams that have vectors and meet queries, and the errors of unusable ones."""
        usable: dict[str, TextEncoder] = {}
        broken: dict[str, WhenaboutsError] = {}
        for name, info in self._store.streams.items():
            if info.dimension and stream(name).meets:
                try:
                    usable[name] = self.encoder_of(info)
                except WhenaboutsError as error:
                    broken[name] = error
        return usable, broken

    def check(self) -> list[StreamCheck]:
        """Whether each stream that meets queries can be searched by meaning."""
        return [self._check(info) for name, info in self._store.streams.items() if stream(name).meets]

    def _check(self, info: StreamInfo) -> StreamCheck:
        made_by = f"{info.encoder}, {info.dimension} dimensions"
        if not info.dimension:
            problem = "searched by words only, not by meaning"
            return StreamCheck(info.name, made_by, problem, stream(info.name).letters_only)
        try:
            self.encoder_of(info)
        except WhenaboutsError as error:
            return StreamCheck(info.name, made_by, "its encoder cannot be used here", str(error))
        return StreamCheck(info.name, made_by)

    def adopt(self, encoder: AnyEncoder, info: StreamInfo | None) -> AnyEncoder:
        """Keep an encoder for later use. Raises EncoderMismatch if it did not make the stream `info`."""
        if info is not None and info.dimension:
            self._store.check_stream(info.name, encoder.fingerprint, encoder.name)
        self._encoders[encoder.fingerprint] = encoder
        return encoder
