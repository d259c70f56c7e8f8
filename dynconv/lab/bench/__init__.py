"""Measurements that a user can repeat: the `dynconv bench` commands."""

from dynconv.lab.bench.decode import bench_decode
from dynconv.lab.bench.operators import bench_ops
from dynconv.lab.bench.train import bench_train

__all__ = ["bench_decode", "bench_ops", "bench_train"]
