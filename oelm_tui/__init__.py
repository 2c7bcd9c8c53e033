"""The screen and the command line of OELM Lab."""
