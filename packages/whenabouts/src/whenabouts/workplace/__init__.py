"""Collections, saved searches and jobs, stored with a corpus; and the guests of a server.

They lie in one file of the corpus, outside the index, so several users can change them, even during an index
run. Guests lie in a file that the server's owner chooses, outside any corpus.
"""
