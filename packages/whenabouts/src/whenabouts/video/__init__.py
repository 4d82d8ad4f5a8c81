"""A file: what is in it, its frames with exact times, its words, its shots."""
