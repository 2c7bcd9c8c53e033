"""Run folders: their layout, their state, their metrics, and the list of them."""
