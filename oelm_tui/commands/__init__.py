"""The subcommands of `oelm`: thin. They parse, call oelm_core, and print."""
