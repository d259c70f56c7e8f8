"""The CUDA kernels: launches.py plans, build.py compiles, call.py launches."""
