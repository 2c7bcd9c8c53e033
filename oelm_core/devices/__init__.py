"""What the machine has and who uses it: processors, memory, disk and NVIDIA cards, as one frozen snapshot."""
