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

import torch
from torch import Tensor

from dynconv.kernels import torch_ops
from dynconv.kernels.cuda.call import Kernels, convert
from dynconv.kernels.cuda.plan import Launch
from dynconv.lab import ledger
from dynconv.lab.bench.measure import SAMPLE, spread
from dynconv.lab.bench.table import Column, bench_table
from dynconv.ops.softmaxconv import dynamic_conv_softmax_cuda

B, T, C, H, K = 2, 16, 64, 4, 7
"""sizes so small that nothing but allocating and launching takes time"""


def bench_host(rounds: int, output: Path | None, say: Callable[[str], None]) -> None:
    """Time forward and backward of each operator without computing anything.

    Functions that only allocate the outputs take turns with our launch path, `rounds` times: their
    time is PyTorch's own. Writes medians and ranges in microseconds to `output`, by default
    data/results/bench-host.json.
    """
    output = ledger.output_path("bench-host", output)
    what = "microseconds of CPU time for forward and backward, up to the driver's calls"
    entry = ledger.entry(what, f"dynconv bench host --rounds {rounds}", {})
    kernels = Kernels(prepare)
    ways = {"launched": {name: getattr(kernels, name) for name in ALLOCATE}, "allocated": ALLOCATE}
    times: dict[str, dict[str, list[float]]] = {way: defaultdict(list) for way in ways}
    for _ in range(rounds):
        for way, functions in ways.items():
            with registered_on_cpu(functions):
                for operator, call in calls().items():
                    call()  # makes the plan
                    times[way][operator].append(1e6 * cpu_seconds(call))
    rows = [
        {"operator": operator}
        | spread("launched", times["launched"][operator])
        | spread("allocated", times["allocated"][operator])
        for operator in times["launched"]
    ]
    entry["numbers"] = {"rounds": rounds, "results": rows}
    ledger.write(output, entry)
    columns = [
        Column("total", 8, lambda row: row["launched"]),
        Column("PyTorch's own", 16, lambda row: row["allocated"]),
    ]
    say(bench_table(what, lambda row: row["operator"], 22, columns, rows))
    say(f"written to {output}")


def cpu_seconds(call: Callable[[], object]) -> float:
    """Return the CPU time of one call, which other programs on the machine hardly change."""
    start, calls, used = time.process_time(), 0, 0.0
    while used < SAMPLE:
        call()
        calls += 1
        used = time.process_time() - start
    return used / calls


def prepare(launch: Launch, arguments: list) -> tuple:
    """Prepare a launch as on a GPU, and leave it there."""
    return launch.source, launch.kernel, tuple(map(convert, arguments))


ALLOCATE: dict[str, Callable] = {
    "conv": lambda x, *_: torch.empty_like(x),
    "conv_backward": lambda g, x, weight, *_: (torch.empty_like(x), torch.empty_like(weight)),
    "conv_softmax": lambda x, *_: torch.empty_like(x),
    "conv_softmax_backward": lambda g, x, w, *_: (torch.empty_like(x), torch.empty_like(w)),
    "talk": lambda x, *_: torch.empty_like(x),
    "talk_backward": lambda g, *inputs: tuple(map(torch.empty_like, inputs[:3])),
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


def calls() -> dict[str, Callable[[], object]]:
    """Return functions that run forward and backward, by the operator's name."""
    x, left, right = (torch.rand(B, T, n, requires_grad=True) for n in (C, H, H))
    taps, logits = (torch.rand(*shape, K, requires_grad=True) for shape in ((H,), (B, T, H)))
    g, pad = torch.ones(B, T, C), K // 2

    def gradients(forward: Callable[[], Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(forward(), inputs, g)

    softmax = partial(dynamic_conv_softmax_cuda, x, logits, pad, 0.1)
    return {
        "light_conv": partial(gradients, lambda: torch_ops.conv(x, taps, pad), x, taps),
        "dynamic_conv": partial(gradients, lambda: torch_ops.conv(x, logits, pad), x, logits),
        "dynamic_conv_softmax": partial(gradients, softmax, x, logits),
        "talk_conv": partial(
            gradients, lambda: torch_ops.talk(x, left, right, pad, pad), x, left, right
        ),
    }
