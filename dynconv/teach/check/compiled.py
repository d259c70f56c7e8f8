"""Kernels that a reader has written, compiled for the simulator."""

from dynconv.kernels import simulate


def compiled(code: str, name: str) -> simulate.Function:
    """Kernel `name` of the CUDA source; AssertionError with the compiler's first error."""
    try:
        return simulate.Module(code, [name]).get_function(name)
    except simulate.CompileError as error:
        raise AssertionError(f"it does not compile: {error}") from None
