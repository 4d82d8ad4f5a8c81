"""People who speak or are seen in a corpus: linked across videos, listed, named, merged and forgotten."""
