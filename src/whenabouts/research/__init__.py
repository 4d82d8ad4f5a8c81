"""The research wing: data sets, relevance, training, evaluation. The product imports nothing of it."""
