"""Commands run in this process on one corpus."""

from tests.cli.commands import bare, corpus, strange_folder, whenabouts

__all__ = ["bare", "corpus", "strange_folder", "whenabouts"]
