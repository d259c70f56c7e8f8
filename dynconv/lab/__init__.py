"""Around the system: measuring, planning, experiments, and CUDA kernels on a CPU."""
