"""What the screen knows: frozen snapshots made in threads, and the pure functions over them."""
