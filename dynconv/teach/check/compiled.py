"""Kernels that a reader has written, compiled for the simulator."""

from dynconv.kernels import simulate
from dynconv.teach.judge import Wrong, kind


def compiled(
    code: str, name: str, signature: str = "", before: str = "", after: str = ""
) -> simulate.Function:
    """Return kernel `name` of the CUDA source; raise `Wrong` with the compiler's first error.

    before, after  other source around it
    signature  how to name the kernel if it is missing
    """
    if not isinstance(code, str):
        raise Wrong(f"it is {kind(code)}, not CUDA source as text")
    try:
        return simulate.Module(before + code + after, [name]).get_function(name)
    except simulate.CompileError as error:
        if str(error).startswith("names:"):
            raise Wrong(f"it has no kernel {signature or name}") from None
        raise Wrong(f"it does not compile: {error}") from None
