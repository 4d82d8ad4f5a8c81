"""Damage that is visible without decoding pictures: broken packets, or a file that becomes unreadable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whenabouts.video.opened import packets_of
from whenabouts.video.probe import open_media, picture_stream


def packet_damage(path: Path) -> str | None:
    """A description of damaged packets of a media file, None if there are none.

    Packets are parsed but not decoded (some thousand times real time), so damage inside a complete packet is
    not found. Raises MediaError if the file cannot be opened.
    """
    import av

    bad, first_bad, at = 0, 0.0, 0.0
    with open_media(path) as container:
        picture = picture_stream(container)
        streams = [stream for stream in (picture, *container.streams.audio[:1]) if stream is not None]
        if picture is not None:
            picture.codec_context.skip_frame = "ALL"
        try:
            for packet in packets_of(container, streams):
                is_bad = packet.is_corrupt or (packet.stream is picture and not _can_be_parsed(packet))
                at = max(at, _seconds(packet))
                if is_bad:
                    first_bad = first_bad if bad else at
                    bad += 1
        except av.error.FFmpegError as error:
            return f"cannot be read beyond {at:.1f} s ({error.strerror}); copy or download it again"
    broken = f"damaged at {first_bad:.1f} s: {bad} packet(s) are broken; copy or download it again"
    return broken if bad else None


def _can_be_parsed(packet: Any) -> bool:
    import av

    if not packet.size:
        return True
    try:
        packet.decode()
    except av.error.EOFError:
        return True
    except av.error.FFmpegError:
        return False
    return True


def _seconds(packet: Any) -> float:
    stamp = packet.dts if packet.pts is None else packet.pts
    start = packet.stream.start_time or 0
    return 0.0 if stamp is None or packet.time_base is None else float((stamp - start) * packet.time_base)
