"""Fixtures of the product's server tests: a corpus and its clients."""

from tests.server.conftest import client, indexed, opened

__all__ = ["client", "indexed", "opened"]
