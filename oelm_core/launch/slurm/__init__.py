"""Past one machine: the same run folder and the same runner, handed to Slurm."""
