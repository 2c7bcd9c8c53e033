"""Charts in characters: reduce to columns, scale, draw with braille or ASCII."""
