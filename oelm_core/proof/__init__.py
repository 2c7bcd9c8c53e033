"""`oelm doctor --gpu`: proves on the user's own cards what no test without a card can.

The command line imports record.py, checks.py, conduct.py, prove.py and slurm_job.py, which are light; the rest needs
torch and runs in a process of its own.
"""
