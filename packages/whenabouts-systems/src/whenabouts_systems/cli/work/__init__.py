"""The work of the verbs that need PyTorch; the files above declare their options without importing it."""
