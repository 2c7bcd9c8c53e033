"""OELM Lab's library: train Transformers whose query and key weights are orthogonal per head and frozen."""

__version__ = "0.1.0"
