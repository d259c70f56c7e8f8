"""Runs that take minutes, with a lesson's own code, and confirm what the lesson shows by fewer.

`python -m dynconv.teach.controls` writes their records.
"""
