"""Trains one run: the worker process, its loop, and everything that makes its result exact and its clock honest."""
