"""Measurements that a user can repeat: the `dynconv bench` commands."""
