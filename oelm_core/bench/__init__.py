"""`oelm bench`: how fast training is on this machine. Its clock also serves benchmarks/, which proves our claims."""
