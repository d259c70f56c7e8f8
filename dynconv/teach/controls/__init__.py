"""Measurements that a lesson states but that take too long for it, recorded in data/results.

`python -m dynconv.teach.controls` runs those that need only the lesson's own code. Those that need
a whole translator are commands of their own, such as `python -m dynconv.teach.controls.talk_drift`.
"""
