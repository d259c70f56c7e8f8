"""Kernels that a reader has written, compiled for the simulator."""

from dynconv.kernels import simulate


def compiled(code: str, name: str, signature: str = "") -> simulate.Function:
    """Kernel `name` of the CUDA source; AssertionError with the compiler's first error.

    signature  how to name the kernel where it is lacking
    """
    if not isinstance(code, str):
        raise AssertionError(f"it is a {type(code).__name__}, not CUDA source as text")
    try:
        return simulate.Module(code, [name]).get_function(name)
    except simulate.CompileError as error:
        if str(error).startswith("names:"):
            raise AssertionError(f"it has no kernel {signature or name}") from None
        raise AssertionError(f"it does not compile: {error}") from None
