"""Studies beyond their runs: what was registered, how arms were tuned, what a preset shows against itself."""
