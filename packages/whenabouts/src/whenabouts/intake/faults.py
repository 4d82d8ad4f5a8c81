"""The error for a file whose bytes are at fault, for everyone who records that a file could not be read."""

from __future__ import annotations

from whenabouts.types import WhenaboutsError


class DataFault(WhenaboutsError):
    """The bytes of a file are at fault: it cannot be read until they change.

    Any other exception (a full disk, no memory, no permission, a store that is away) says nothing about the
    file, so it must be read again.
    """
