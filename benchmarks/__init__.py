"""What proves our claims about speed: `make bench`, or `python -m benchmarks`. Not in the wheel."""
