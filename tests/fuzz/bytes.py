"""Bytes changed by chance, as disks, downloads and people change them."""

from __future__ import annotations

import random


def damaged(data: bytes, rng: random.Random, other: bytes = b"") -> tuple[bytes, str]:
    """Some bytes changed, and how."""
    out = bytearray(data)
    way = rng.choice(("flip", "bit", "cut", "zero", "repeat", "splice", "extreme", "head"))
    if not out:
        return bytes(rng.randbytes(16)), "filled"
    at = rng.randrange(len(out))
    length = rng.choice((1, 4, 64, 1024, len(out) // 4 + 1))
    if way == "flip":
        for _ in range(rng.choice((1, 3, 30))):
            out[rng.randrange(len(out))] = rng.randrange(256)
    elif way == "bit":
        out[at] ^= 1 << rng.randrange(8)
    elif way == "cut":
        del out[at:]
    elif way == "zero":
        out[at : at + length] = bytes(len(out[at : at + length]))
    elif way == "repeat":
        out[at:at] = out[at : at + length]
    elif way == "splice":
        out[at : at + length] = other[at : at + length]
    elif way == "extreme":
        value = rng.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\0\0\1", b"\xff" * 8, b"\x80" + bytes(7)))
        out[at : at + len(value)] = value
    else:
        for _ in range(8):
            out[rng.randrange(min(len(out), 2048))] = rng.randrange(256)
    return bytes(out), way
