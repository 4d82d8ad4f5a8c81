"""Commands run in this process, as those of the product are tested."""

from tests.cli.commands import bare, corpus, strange_folder, whenabouts

__all__ = ["bare", "corpus", "strange_folder", "whenabouts"]
