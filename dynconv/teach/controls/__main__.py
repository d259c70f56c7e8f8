"""Runs the controls that need only the code of their lessons, and records them."""

import torch

from dynconv.teach.checkout import run_tool
from dynconv.teach.controls import (
    attention,
    averaging,
    dropconnect,
    forgetting,
    gates,
    loudness,
    normalizers,
    pointing,
    sharing,
    softmax,
    warmup,
)
from dynconv.teach.controls.control import record_control

COMMAND = "python -m dynconv.teach.controls"
MODULES = (
    attention,
    gates,
    sharing,
    softmax,
    dropconnect,
    normalizers,
    averaging,
    loudness,
    warmup,
    forgetting,
    pointing,
)


def main() -> None:
    """Run the controls and record them."""
    torch.set_num_threads(1)  # enough for models as small as these
    for module in MODULES:
        for name, control in module.CONTROLS.items():
            record_control(name, control, COMMAND)


if __name__ == "__main__":
    run_tool(main)
