"""The encoders of a corpus: opened by name when they are needed, kept, and never mixed up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar, cast

from whenabouts.index.records import EncoderMismatch, StreamInfo
from whenabouts.types import WhenaboutsError

if TYPE_CHECKING:
    from whenabouts.encoders.protocol import ImageEncoder, TextEncoder
    from whenabouts.index.store import Store

AnyEncoder = TypeVar("AnyEncoder", bound="TextEncoder")

WORDS, VISION = "subtitle", "vision"
LETTERS = "letters"
"""Stands for an encoder where words are found by letter only: no vectors, width 0."""


class EncoderRegistry:
    """Opens the encoders that a corpus was made with, or takes them from those that were given.

    A stream's vectors and the query's must come from one encoder; any other raises EncoderMismatch.
    """

    def __init__(self, store: Store, encoders: Iterable[TextEncoder] = ()) -> None:
        self._store = store
        self._encoders: dict[str, TextEncoder] = {encoder.fingerprint: encoder for encoder in encoders}

    def beside(self, store: Store) -> EncoderRegistry:
        """The same encoders for another handle on the corpus."""
        registry = EncoderRegistry(store)
        registry._encoders = self._encoders
        return registry

    def text(self, given: str | TextEncoder | None, notes: list[str]) -> TextEncoder | None:
        """The encoder for words: the one given, the corpus's own, or the offline default.

        None, and a note of what to do, where even that is not there.
        """
        from whenabouts.encoders import EncoderUnavailable, open_text_encoder

        info = self._store.streams.get(WORDS)
        if given is not None:
            encoder = open_text_encoder(given) if isinstance(given, str) else given
        elif info is not None and info.dimension:
            return self.encoder_of(info)
        else:
            try:
                encoder = open_text_encoder()
            except EncoderUnavailable as error:
                notes.append(f"words are searched by letter only, not by meaning: {error}")
                return None
        return self._adopted(encoder, info)

    def vision(self, given: str | ImageEncoder | None, notes: list[str]) -> ImageEncoder | None:
        """The encoder for pictures: the one given or the corpus's own.

        None, and a note of what to do, where there is neither or where its weights cannot be had.
        """
        from whenabouts.encoders import EncoderUnavailable, open_image_encoder

        info = self._store.streams.get(VISION)
        if given is None and info is None:
            notes.append(
                "pictures are not searched, only words: no vision model was named. Add it now or later with "
                "--vision MODEL (such as openai/clip-vit-base-patch32, or a folder with its files); "
                "words that are indexed stay as they are"
            )
            return None
        try:
            if given is None:
                assert info is not None
                return cast("ImageEncoder", self.encoder_of(info))
            encoder = open_image_encoder(given) if isinstance(given, str) else given
        except EncoderUnavailable as error:
            notes.append(
                f"the pictures of these videos are not searched, only their words: {error}. "
                "Run the same command again when the model is there; words that are indexed stay as they are"
            )
            return None
        return self._adopted(encoder, info)

    def encoder_of(self, info: StreamInfo) -> TextEncoder:
        """The encoder that a stream was made with. Raises EncoderUnavailable, EncoderMismatch."""
        from whenabouts.encoders import EncoderUnavailable, open_image_encoder, open_text_encoder

        if info.fingerprint in self._encoders:
            return self._encoders[info.fingerprint]
        try:
            opened = (open_image_encoder if info.name == VISION else open_text_encoder)(info.encoder)
        except EncoderUnavailable as error:
            raise EncoderUnavailable(
                f"{self._store.place}: stream {info.name} was made with {info.encoder}, "
                f"which cannot be used here: {error}"
            ) from error
        return self._adopted(opened, info)

    def by_name(self, name: str | None) -> TextEncoder:
        """The text encoder of that name, None for the offline default. Raises EncoderUnavailable."""
        from whenabouts.encoders import DEFAULT_TEXT_ENCODER, open_text_encoder

        wanted = name or DEFAULT_TEXT_ENCODER
        for known in self._encoders.values():
            if known.name == wanted:
                return known
        return self._adopted(open_text_encoder(name), None)

    def for_queries(self) -> dict[str, TextEncoder]:
        """What queries are encoded with, for each stream that has vectors."""
        streams = self._store.streams
        return {name: self.encoder_of(info) for name, info in streams.items() if info.dimension}

    def clip_seconds(self, given: float | None) -> float | None:
        """The length of picture clips: of a corpus that has some, else as given."""
        info = self._store.streams.get(VISION)
        if info is None:
            return given
        settled = float(info.settings["clip_seconds"])
        if given is not None and given != settled:
            raise EncoderMismatch(
                f"{self._store.place}: pictures were taken every {settled:g} s, not every {given:g} s; "
                "leave --clip-seconds out, or index into a new corpus"
            )
        return settled

    def declare(self, text: TextEncoder | None, vision: ImageEncoder | None, clip_seconds: float) -> None:
        """Write down with what the corpus's streams are made from now on."""
        if text is not None:
            self._store.add_stream(StreamInfo(WORDS, text.name, text.fingerprint, text.dimension, {}))
        elif WORDS not in self._store.streams:
            self._store.add_stream(StreamInfo(WORDS, LETTERS, LETTERS, 0, {}))
        if vision is not None:
            settings = {"clip_seconds": clip_seconds}
            self._store.add_stream(
                StreamInfo(VISION, vision.name, vision.fingerprint, vision.dimension, settings)
            )

    def check(self) -> list[tuple[str, str, str, str]]:
        """For each stream: name, what made it, what is wrong with searching it ("": nothing), the remedy."""
        checked = []
        for name, info in self._store.streams.items():
            problem = remedy = ""
            if not info.dimension:
                problem = "searched by letter only, not by meaning"
                remedy = "install a sentence encoder (see above) and index again"
            else:
                try:
                    self.encoder_of(info)
                except WhenaboutsError as error:
                    problem, remedy = "its encoder cannot be used here", str(error)
            checked.append((name, f"{info.encoder}, {info.dimension} dimensions", problem, remedy))
        return checked

    def _adopted(self, encoder: AnyEncoder, info: StreamInfo | None) -> AnyEncoder:
        """Keep an encoder; EncoderMismatch if the corpus's stream was made with another one."""
        if info is not None and info.dimension:
            self._store.check_stream(info.name, encoder.fingerprint, encoder.name)
        self._encoders[encoder.fingerprint] = encoder
        return encoder
