"""`dynconv bench host`: the time that the CPU needs to launch the CUDA kernels of an operator.

A GPU waits for the CPU when its kernels are short, as they are for small batches. Measuring this
needs no GPU: small tensors on the CPU take the same path up to the driver's call, which we omit.
"""

import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

from dynconv.kernels import torch_ops
from dynconv.kernels.cuda.call import Kernels, Values
from dynconv.kernels.cuda.plan import Launch
from dynconv.kernels.torch_library import eager
from dynconv.lab import ledger
from dynconv.lab.bench.measure import median_and_range, seconds_per_call
from dynconv.lab.bench.table import Column, bench_table
from dynconv.ops.softmaxconv import draw_seed

B, T, C, H, K = 2, 16, 64, 4, 7
"""sizes so small that nothing but allocating and launching takes time"""


def bench_host(rounds: int, output: Path | None, say: Callable[[str], None]) -> None:
    """Time forward and backward of each operator without computing anything.

    Three ways take turns, `rounds` times: as in training, through PyTorch's registry as under
    torch.compile (the only way before `eager`), and as in training with functions that only
    allocate the outputs: their time is PyTorch's own. Writes medians and ranges in microseconds to
    `output`, by default data/results/bench-host.json.
    """
    output = ledger.output_path("bench-host", output)
    what = "microseconds of CPU time for forward and backward, up to the driver's calls"
    record = ledger.new_record(what, ledger.command_line("bench", "host", "--rounds", rounds), {})
    kernels = Kernels(omit)
    functions = {name: getattr(kernels, name) for name in ALLOCATE}
    ways = {
        "launched": eager(kernels, ALLOCATE),
        "registered": torch_ops,
        "allocated": eager(SimpleNamespace(**ALLOCATE), ALLOCATE),
    }
    times: dict[str, dict[str, list[float]]] = {way: defaultdict(list) for way in ways}
    with registered_on_cpu(functions):
        for _ in range(rounds):
            for way, operators in ways.items():
                for operator, call in make_calls(operators).items():
                    call()  # makes the plan
                    # CPU time, which other programs on the machine hardly change.
                    seconds = seconds_per_call(call, time.process_time)
                    times[way][operator].append(1e6 * seconds)
    rows = [
        {"operator": operator}
        | median_and_range("launched", times["launched"][operator])
        | median_and_range("registered", times["registered"][operator])
        | median_and_range("allocated", times["allocated"][operator])
        for operator in times["launched"]
    ]
    record["numbers"] = {"rounds": rounds, "results": rows}
    ledger.write(output, record)
    columns = [
        Column("total", 8, lambda row: row["launched"]),
        Column("by the registry", 18, lambda row: row["registered"]),
        Column("PyTorch's own", 16, lambda row: row["allocated"]),
    ]
    say(bench_table(what, lambda row: row["operator"], 22, columns, rows))
    say(f"written to {output}")


def omit(launch: Launch, values: Values, tensors: list[Tensor]) -> tuple:
    """Look up what the driver would be called with, but do not call it."""
    return launch.source, launch.kernel, tensors[0].device


ALLOCATE: dict[str, Callable] = {
    "conv": lambda x, *_: torch.empty_like(x),
    "conv_backward": lambda g, x, weight, *_: (torch.empty_like(x), torch.empty_like(weight)),
    "softmax_conv": lambda x, *_: torch.empty_like(x),
    "softmax_conv_backward": lambda g, x, w, *_: (torch.empty_like(x), torch.empty_like(w)),
    "talk_conv": lambda x, *_: torch.empty_like(x),
    "talk_conv_backward": lambda g, *inputs: tuple(map(torch.empty_like, inputs[:3])),
}
"""functions that allocate the outputs of an operator and leave them empty, keyed by its name"""


@contextmanager
def registered_on_cpu(functions: dict[str, Callable]) -> Iterator[None]:
    """Make these functions the operators' implementations on the CPU inside the context."""
    library = torch.library.Library("dynconv", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says that it replaces others
        for name, function in functions.items():
            library.impl(name, function, "CPU")
    yield  # without a reference to the library, PyTorch restores its own


def make_calls(operators) -> dict[str, Callable[[], object]]:
    """Return functions that run forward and backward of these operators, by the layer's name."""
    x, left, right = (torch.rand(B, T, n, requires_grad=True) for n in (C, H, H))
    taps, logits = (torch.rand(*shape, K, requires_grad=True) for shape in ((H,), (B, T, H)))
    g, pad = torch.ones(B, T, C), K // 2

    def gradients(forward: Callable[[], Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(forward(), inputs, g)

    def softmax() -> Tensor:
        return operators.softmax_conv(x, logits, draw_seed(x, 0.1), 0.1, pad)

    return {
        "light_conv": partial(gradients, lambda: operators.conv(x, taps, pad), x, taps),
        "dynamic_conv": partial(gradients, lambda: operators.conv(x, logits, pad), x, logits),
        "softmax_conv": partial(gradients, softmax, x, logits),
        "talk_conv": partial(
            gradients, lambda: operators.talk_conv(x, left, right, pad, pad), x, left, right
        ),
    }
