"""Tools around the system: benchmarks, experiments, cost estimates, CUDA kernels on a CPU."""
