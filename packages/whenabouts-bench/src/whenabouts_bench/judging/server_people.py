"""Who judges: a link for each annotator, so that nobody judges as another."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from whenabouts.server.settings import SHORTEST_TOKEN, TOKEN_VARIABLE
from whenabouts.types import UsageError


@dataclass(frozen=True)
class People:
    """The annotators of a server, and the one who leads: who started it.

    `tokens` is token -> name of all but the lead, whose token is `lead_token`. `lead` is the name under which
    the lead judges, "" where the lead judges nothing.
    """

    tokens: Mapping[str, str]
    lead_token: str
    lead: str = ""

    @classmethod
    def of(cls, names: Sequence[str], login: str, secret: str = "") -> People:
        """Those of some names; nobody named: one who leads and judges as `login`.

        Links of one `secret` stay the same whenever the server starts; "" draws one. Raises UsageError for a
        name that comes twice, and for a secret that could be guessed: who has one link could make the others.
        """
        if secret and len(secret) < SHORTEST_TOKEN:
            problem = f"{TOKEN_VARIABLE} has {len(secret)} letters; `openssl rand -hex 16` makes a good one"
            raise UsageError(problem)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(
                f"--annotator {twice[0]}: comes twice; a name is a person, whose judgements it has"
            )
        secret = secret or secrets.token_hex(16)
        return cls({_token(secret, name): name for name in names}, _token(secret, ""), "" if names else login)

    @property
    def names(self) -> tuple[str, ...]:
        """All who judge here."""
        return (*self.tokens.values(), *([self.lead] if self.lead else []))

    def judging(self, user: str) -> str:
        """The name under which the holder of a token judges: `user` as `Guard` has it; "" for nobody."""
        return user or self.lead


def _token(secret: str, name: str) -> str:
    return blake2b(f"judge {name}".encode(), key=secret.encode()[:64], digest_size=16).hexdigest()
