"""The shipped presets: data, no code."""
