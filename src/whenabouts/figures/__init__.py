"""Pictures of how sure answers are, of what is lost among distractors, as files; with the extra `report`."""
