"""The annotators of a server: each has a link, so that nobody judges as another."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from whenabouts.server.settings import SHORTEST_TOKEN, TOKEN_VARIABLE
from whenabouts.types import UsageError


@dataclass(frozen=True)
class People:
    """The annotators of a server, and the lead who started it.

    `tokens` is token -> name of all but the lead, whose token is `lead_token`. `lead` is the name under which
    the lead judges, "" if the lead does not judge.
    """

    tokens: Mapping[str, str]
    lead_token: str
    lead: str = ""
    secret: str = field(default="", repr=False, compare=False)

    @classmethod
    def of(cls, names: Sequence[str], login: str, secret: str = "") -> People:
        """The people of some names; without names, the lead judges as `login`.

        Links stay the same for the same `secret`; "" draws one. Raises UsageError for duplicate names, and
        for a secret that could be guessed, because it yields everybody's link.
        """
        if secret and len(secret) < SHORTEST_TOKEN:
            problem = f"{TOKEN_VARIABLE} has {len(secret)} letters; `openssl rand -hex 16` makes a good one"
            raise UsageError(problem)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"--annotator {twice[0]}: is named twice; give each person a name of their own")
        secret = secret or secrets.token_hex(16)
        tokens = {_token(secret, name): name for name in names}
        return cls(tokens, _token(secret, ""), "" if names else login, secret)

    def joined_by(self, name: str) -> tuple[People, str]:
        """The people with one more, and the token of that name; a known name keeps its token."""
        token = _token(self.secret, name)
        return replace(self, tokens={**self.tokens, token: name}), token

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.tokens.values(), *([self.lead] if self.lead else []))

    def judging(self, user: str) -> str:
        """The name under which the user of `Guard` judges; "" for nobody."""
        return user or self.lead


def _token(secret: str, name: str) -> str:
    return blake2b(f"judge {name}".encode(), key=secret.encode()[:64], digest_size=16).hexdigest()
