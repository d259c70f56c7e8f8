"""Kernels of our own: C for the CPU, compiled at first use, and their place in PyTorch."""
