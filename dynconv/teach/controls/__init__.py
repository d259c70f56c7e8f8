"""Runs that take minutes, with a lesson's own code, and confirm what the lesson shows by fewer.

`python -m dynconv.teach.controls` writes their records. Three controls are about whole translators:
`activation_patching`, `fast_fading` and `talk_drift`. Each is a command of its own, which takes the
directory of the run.
"""
