"""Measurements that a user can repeat."""

from dynconv.bench.decode import bench_decode
from dynconv.bench.operators import bench_ops
from dynconv.bench.train import bench_train

__all__ = ["bench_decode", "bench_ops", "bench_train"]
