"""Past one machine: the same run folder and the same runner, submitted to Slurm."""
