"""NVIDIA's compiler and disassembler, which run without a GPU and show what a kernel costs.

nvrtc.py     compiles CUDA source, and reads how many registers each kernel needs
nvdisasm.py  reads the instructions of the compiled code
"""
