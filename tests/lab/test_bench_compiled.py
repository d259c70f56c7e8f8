"""The measurement of torch.compile in training, with a backend that compiles nothing."""

from conftest import ROOT

from dynconv.lab import ledger
from dynconv.lab.bench import compiled


def test_one_graph_for_each_kind_of_block_and_equal_gradients(monkeypatch):
    """Encoder and decoder, each with kernels of two sizes; batches of any length share graphs."""
    monkeypatch.setattr(compiled, "BATCHES", 3)
    monkeypatch.setattr(compiled, "ROUNDS", 1)
    stack = "{layers: 3, mixer: dynamic, kernel_size: [3, 5, 5]}"
    small = ["channels=16", "ffn=16", "vocab_size=60", f"encoder={stack}", f"decoder={stack}"]
    overrides = [*(f"model.{entry}" for entry in small), "train.batch_tokens=200"]
    found = compiled.measure_compiled([*overrides, "train.precision=float32"], "eager")
    assert found["graphs"] == 4
    assert found["difference"] < 1e-5
    low, high = found["speedup_range"]
    assert 0 < low <= found["speedup"] <= high and found["eager_ms"] > 0 < found["compile_s"]


def test_architecture_says_why_training_does_not_compile():
    text = " ".join((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split())
    numbers = ledger.read("compiled")["numbers"]
    single, half = numbers["float32"], numbers["bfloat16"]
    assert single["graphs"] == half["graphs"] == 6
    assert f"took {single['compile_s']:.0f} s of CPU time" in text
    assert f"{single['speedup']:.2f} times as fast as without, {half['speedup']:.2f} times" in text
