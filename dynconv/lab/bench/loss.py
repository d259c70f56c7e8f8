"""Measures the memory of the loss on a CPU: all logits at once, and in chunks.

`python -m dynconv.lab.bench.loss` writes data/results/loss-memory.json.
"""

import torch
from torch import nn

from dynconv.lab import ledger
from dynconv.lab.bench.measure import peak_allocation
from dynconv.models.loss import MAX_LOGITS, ChunkedLoss, label_smoothed_loss

TOKENS, CHANNELS, TYPES = 4096, 1024, 32768
"""sizes of a batch and of the output layer of wmt16-en-de-dynamic"""
SMOOTHING = 0.1


def measure_loss(tokens: int, channels: int, types: int, rows: int) -> dict[str, int]:
    """Return the peak bytes of forward and backward, all at once and in chunks of `rows` tokens."""
    hidden = torch.randn(tokens, channels, requires_grad=True)
    output = nn.Linear(channels, types, bias=False)
    target = torch.randint(types, (tokens,))

    def whole() -> None:
        label_smoothed_loss(output(hidden), target, SMOOTHING).backward()

    def chunked() -> None:
        ChunkedLoss.apply(hidden, output.weight, None, target, SMOOTHING, rows).backward()

    peaks = {}
    for name, call in {"whole": whole, "chunked": chunked}.items():
        hidden.grad = output.weight.grad = None
        peaks[name] = peak_allocation(call)
    return peaks


if __name__ == "__main__":
    what = "peak bytes of the loss and its gradients, float32, through PyTorch's CPU allocator"
    record = ledger.new_record(what, "python -m dynconv.lab.bench.loss", {})
    rows = MAX_LOGITS // TYPES
    sizes = {"tokens": TOKENS, "channels": CHANNELS, "types": TYPES, "rows_of_a_chunk": rows}
    record["numbers"] = sizes | measure_loss(TOKENS, CHANNELS, TYPES, rows)
    ledger.write(ledger.output_path("loss-memory", None), record)
    print(record["numbers"])
