"""In-place initialisers that leave loaded weights alone: transformers 5 has its own for that, torch's do before."""

from __future__ import annotations

try:
    from transformers.initialization import normal_, ones_, zeros_
except ImportError:  # transformers 4 guards by module, not by tensor
    from torch.nn.init import normal_, ones_, zeros_

__all__ = ["normal_", "ones_", "zeros_"]
