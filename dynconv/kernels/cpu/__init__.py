"""Runs the C kernels: build.py compiles the sources of this folder, call.py calls them."""
