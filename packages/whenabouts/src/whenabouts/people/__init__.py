"""People who speak and who are seen, across the videos of a corpus."""
