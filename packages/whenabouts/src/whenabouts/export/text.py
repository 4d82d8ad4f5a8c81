"""Formats text, numbers and times for exported files (WebVTT, CSV, EDL)."""

from __future__ import annotations


def escaped(text: str) -> str:
    """Text escaped for a WebVTT cue, so that it contains neither tags nor arrows.

    >>> escaped("<b>a --> b</b>")
    '&lt;b&gt;a --&gt; b&lt;/b&gt;'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def number(value: float | None, digits: int = 4) -> str:
    """A number rounded to `digits` (1 or more) decimals, without zeros at the end; "" for None.

    >>> number(0.5), number(None)
    ('0.5', '')
    """
    return "" if value is None else f"{value:.{digits}f}".rstrip("0").rstrip(".")


def share(value: float | None, digits: int = 4) -> str:
    """A confidence in [0, 1] as `number` writes it, but a value below 1 is never rounded up to 1.

    >>> share(0.999998), share(1.0), share(0.97)
    ('0.9999', '1', '0.97')
    """
    highest = 1.0 - 10.0**-digits
    return number(highest if value is not None and highest < value < 1 else value, digits)


def clock(seconds: float) -> str:
    """A time of 0 s or more as HH:MM:SS.mmm, as in WebVTT.

    >>> clock(3723.5)
    '01:02:03.500'
    """
    milliseconds = round(seconds * 1000)
    whole, thousandths = divmod(milliseconds, 1000)
    minutes, second = divmod(whole, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02d}:{minute:02d}:{second:02d}.{thousandths:03d}"
