"""Curves where the group looks: a run's metrics.jsonl, carried to TensorBoard, W&B, Trackio or MLflow.

A bridge outside the training process reads the run folder and writes there (`bridge.py`); where it got to is kept in
the run's `mirror/`. The targets are in `targets.py`, one module each; none of their libraries is loaded before it is
asked for.
"""
