"""The science: how Q and K start, what is frozen and when it thaws, counts, attention. It knows no runs."""
