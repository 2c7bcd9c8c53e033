"""Import of the author's output folders as read-only runs."""
