"""What the panels say: pure functions from snapshots and details to rows and lines."""
