"""Tables as LaTeX: booktabs rules, names of files made harmless."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_ESCAPED = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
}


def escaped(text: str) -> str:
    """Text that LaTeX prints as it stands; control characters become blanks.

    >>> print(escaped("50%_of {a}"))
    50\\%\\_of \\{a\\}
    """
    return "".join(
        " " if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") else _ESCAPED.get(letter, letter)
        for letter in text
    )


def booktabs(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str,
    label: str,
    before: Sequence[str] = (),
) -> str:
    """A floating table: first column to the left, the others centred. All text is LaTeX already.

    `before` are lines of comment that stand above it, such as the packages it needs.
    """
    lines = [f"% {line}" for line in before]
    lines += [r"\begin{table}", r"  \centering", f"  \\caption{{{caption}}}", f"  \\label{{{label}}}"]
    lines += [f"  \\begin{{tabular}}{{l{'c' * (len(head) - 1)}}}", r"    \toprule"]
    lines += [f"    {' & '.join(head)} \\\\", r"    \midrule"]
    lines += [f"    {' & '.join(row)} \\\\" for row in rows]
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"
