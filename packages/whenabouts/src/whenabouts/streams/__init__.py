"""The registry of streams (words, pictures, sounds, people, …): one module of this folder per stream.

Every module here whose name does not begin with an underscore defines one stream as `STREAM`, an
`index.stream.Stream` named after its file. A new stream needs only a new file; plugins (`whenabouts.streams`)
and `register` add others. Reading the folder imports nothing heavier than NumPy: encoders load their
libraries when they are opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from whenabouts import plugins
from whenabouts.index.stream import Option, Stream

__all__ = [
    "Option",
    "Stream",
    "all_streams",
    "answering",
    "filter_streams",
    "frame_stream",
    "index_options",
    "register",
    "stream",
    "unregister",
]

_registered: dict[str, Stream] = {}


@cache
def _built_in() -> dict[str, Stream]:
    """The streams of this folder and of plugins by name, in their `order`."""
    modules = plugins.modules_declaring(__name__, "STREAM")
    streams: list[Stream] = [*(module.STREAM for module in modules), *plugins.loaded("streams").values()]
    return {stream.name: stream for stream in sorted(streams, key=lambda stream: (stream.order, stream.name))}


def all_streams() -> dict[str, Stream]:
    """All installed streams by name; a stream that reads the clips of others comes after them."""
    waiting = {**_built_in(), **_registered}
    ordered: dict[str, Stream] = {}
    while waiting:
        ready = [name for name, stream in waiting.items() if not waiting.keys() & set(stream.reads_clips_of)]
        if not ready:
            raise ValueError(f"streams {', '.join(waiting)} read each other's clips in a circle")
        ordered |= {name: waiting.pop(name) for name in ready}
    return ordered


def stream(name: str) -> Stream:
    """The stream of that name; one that is not installed is searched by a plain `Stream`."""
    return _registered.get(name) or _built_in().get(name) or Stream(name)


def answering(names: Iterable[str]) -> list[str]:
    """The streams whose clips text queries can find, in their order."""
    return [name for name in names if "text" in stream(name).meets]


def filter_streams(names: Iterable[str]) -> dict[str, str]:
    """The streams whose clips can narrow a search, by the condition's key (`Stream.filter_key`)."""
    return {key: name for name in names if (key := stream(name).filter_key)}


def frame_stream(names: Iterable[str]) -> str | None:
    """The first stream whose clips are frames encoded by an image encoder."""
    return next((name for name in names if stream(name).encoder_kind == "images"), None)


def index_options() -> tuple[Option, ...]:
    """The options that all installed streams add to `index`."""
    return tuple(option for stream in all_streams().values() for option in stream.options)


def register(stream: Stream) -> None:
    """Add a stream until `unregister`; it replaces one of the same name.

    Its class must be importable by its module's name, because other processes unpickle it.
    """
    _registered[stream.name] = stream


def unregister(name: str) -> None:
    """Remove a registered stream."""
    _registered.pop(name, None)
