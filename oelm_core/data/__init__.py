"""From text to arrays: named sets, the user's own files, tokenizers, prepared token files."""
