"""Killing things at random, and the little lab they are killed in."""
