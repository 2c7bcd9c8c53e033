"""Starting, queueing, stopping and resuming runs; everything here stays light, for a hundred runners may wait."""
