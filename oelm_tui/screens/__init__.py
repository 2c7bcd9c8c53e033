"""Screens: home, launch, compare and the small ones they open."""
