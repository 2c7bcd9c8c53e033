"""Pure functions from snapshots and details to rows and lines of text."""
