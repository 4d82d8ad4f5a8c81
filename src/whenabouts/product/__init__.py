"""The product wing: corpora, streams, search, server, commands. It imports nothing of the research wing."""
