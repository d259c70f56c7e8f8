"""`dynconv bench host`: the CPU time of launches, without a GPU."""

import json

import torch

from dynconv import cli
from dynconv.kernels import torch_ops
from dynconv.lab.bench import host


def test_the_command_measures_launches_and_leaves_the_operators_alone(
    tmp_path, capsys, monkeypatch
):
    launches = []
    monkeypatch.setattr(host, "omit", lambda launch, *_: launches.append(launch.kernel))
    x, weight = torch.rand(1, 9, 8), torch.rand(2, 3)
    before = torch_ops.conv(x, weight, 1)
    path = tmp_path / "host.json"
    assert cli.main(["bench", "host", "--rounds", "2", "--output", str(path)]) == 0
    assert torch.equal(torch_ops.conv(x, weight, 1), before), "the C kernels are back"
    numbers = json.loads(path.read_text())["numbers"]
    assert numbers["rounds"] == 2
    names = ["light_conv", "dynamic_conv", "softmax_conv", "talk_conv"]
    assert [row["operator"] for row in numbers["results"]] == names
    for row in numbers["results"]:
        for way in ("launched", "registered", "allocated"):
            low, high = row[f"{way}_range"]
            assert 0 < low <= row[way] <= high
    forward = {"light_conv", "dynamic_conv", "softmax_conv", "talk_conv"}
    assert forward <= {kernel.split("<")[0] for kernel in launches}
    printed = capsys.readouterr().out
    assert all(name in printed for name in names)
