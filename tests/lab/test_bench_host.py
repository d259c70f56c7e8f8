"""`dynconv bench host`: the CPU time of launches, without a GPU."""

import json

import torch

from dynconv import cli
from dynconv.kernels import torch_ops


def test_the_command_measures_launches_and_leaves_the_operators_alone(tmp_path, capsys):
    x, weight = torch.rand(1, 9, 8), torch.rand(2, 3)
    before = torch_ops.conv(x, weight, 1)
    path = tmp_path / "host.json"
    assert cli.main(["bench", "host", "--rounds", "2", "--output", str(path)]) == 0
    assert torch.equal(torch_ops.conv(x, weight, 1), before), "the C kernels are back"
    numbers = json.loads(path.read_text())["numbers"]
    assert numbers["rounds"] == 2
    names = ["light_conv", "dynamic_conv", "dynamic_conv_softmax", "talk_conv"]
    assert [row["operator"] for row in numbers["results"]] == names
    for row in numbers["results"]:
        assert row["launched_range"][1] > row["allocated_range"][0] > 1
    printed = capsys.readouterr().out
    assert all(name in printed for name in names)
