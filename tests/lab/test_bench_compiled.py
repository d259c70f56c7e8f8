"""The measurement of torch.compile in training, with a backend that compiles nothing."""

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
