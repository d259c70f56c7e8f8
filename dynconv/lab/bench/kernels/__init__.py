"""`dynconv bench kernels`: the CUDA kernels, on paper and on a GPU."""
