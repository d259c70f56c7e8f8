"""Runs the CUDA kernels: plan.py decides what to launch, build.py compiles, call.py launches."""
