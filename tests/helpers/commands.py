"""Commands as tests call them."""

import sys

from dynconv import cli

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


def command(processes: int, *arguments) -> list[str]:
    """The one command of the README, under torchrun or alone."""
    dynconv = ["dynconv", "train", *map(str, arguments)]
    if processes == 1:
        return [sys.executable, "-m", *dynconv]
    return [*TORCHRUN, f"--nproc-per-node={processes}", "-m", *dynconv]


def fails(capsys, *arguments, code: int = 2) -> str:
    """The one line of a command that must fail."""
    capsys.readouterr()
    assert cli.main([str(a) for a in arguments]) == code
    output, error = capsys.readouterr()
    assert output == ""
    assert error.startswith("dynconv: ")
    assert error.count("\n") == 1
    return error
