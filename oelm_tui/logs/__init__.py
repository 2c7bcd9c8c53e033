"""Training logs: reading pages of a file, making lines harmless, searching."""
