"""The annotators of a judging server: each has a secret link, so that nobody judges under another's name."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from whenabouts.server.settings import SHORTEST_TOKEN, TOKEN_VARIABLE
from whenabouts.types import UsageError


@dataclass(frozen=True)
class People:
    """The annotators of a server, and the lead, who started it.

    `tokens` maps the token in each annotator's link to the name; the lead has `lead_token` instead. `lead` is
    the name under which the lead judges, "" if the lead does not judge. All tokens derive from `secret`.
    """

    tokens: Mapping[str, str]
    lead_token: str
    lead: str = ""
    secret: str = field(default="", repr=False, compare=False)

    @classmethod
    def of(cls, names: Sequence[str], login: str, secret: str = "") -> People:
        """Give each name a token; without names, the lead judges under the name `login`.

        The same `secret` gives the same tokens; "" draws a random one. Raises UsageError for duplicate names,
        and for a secret short enough to be guessed, because everybody's token can be computed from it.
        """
        if secret and len(secret) < SHORTEST_TOKEN:
            least = f"give at least {SHORTEST_TOKEN}, for example by `openssl rand -hex 16`"
            raise UsageError(f"{TOKEN_VARIABLE} has {len(secret)} letters; {least}")
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise UsageError(f"--annotator {duplicates[0]}: is named twice; give everybody a different name")
        secret = secret or secrets.token_hex(16)
        tokens = {_token(secret, name): name for name in names}
        return cls(tokens, _token(secret, ""), "" if names else login, secret)

    def joined_by(self, name: str) -> tuple[People, str]:
        """(people with `name` added, the token of `name`); a known name keeps its token."""
        token = _token(self.secret, name)
        return replace(self, tokens={**self.tokens, token: name}), token

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.tokens.values(), *([self.lead] if self.lead else []))

    def judging(self, user: str) -> str:
        """The name under which a visitor judges ("": does not); `user` is `Guard`'s name, "" for the lead."""
        return user or self.lead


def _token(secret: str, name: str) -> str:
    return blake2b(f"judge {name}".encode(), key=secret.encode()[:64], digest_size=16).hexdigest()
