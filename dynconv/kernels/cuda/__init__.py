"""The CUDA kernels: planned in launches.py, compiled in build.py, run in call.py."""
