"""Trains one run: worker (the process) -> session (set-up) -> loop (fit) -> results.

What the loop uses: schedule (examples, draws and learning rate of step k), tasks (batches, loss and evaluation of a
family), precision (autocast, fp16 scaling), distributed (ranks), evaluation (batch size, figures), recorder (what is
written meanwhile), checkpoint, timing (clock, memory). supervision and failures say how a run can end early.
"""
