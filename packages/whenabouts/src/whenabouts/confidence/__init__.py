"""How sure an answer is: what chance scores on a corpus, and what came of questions whose truth is known."""
