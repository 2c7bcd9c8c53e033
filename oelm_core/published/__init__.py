"""The author's figures: what was published, the audit of it, and the import of old output folders."""
