"""Runs the C kernels: build.py compiles the sources in this folder, and call.py calls them."""
