"""What the screen knows about the lab: frozen snapshots made in threads, and the pure functions over them."""
