"""Saves the checkpoints of a session.

Rank 0 copies the state, and training goes on while a thread writes the copy. One checkpoint is
written at a time: the next one waits for it, and raises its errors.
"""

from concurrent.futures import Executor, Future
from typing import Any

import torch

from dynconv.text.prepared import TOKENS, VOCABULARY
from dynconv.train.session import Session
from dynconv.train.weights import named_weights


class CheckpointSaver:
    """Saves the checkpoints of a session, whose state it copies before `writer` writes the copy.

    writer  runs one function at a time, in a thread
    """

    def __init__(self, session: Session, writer: Executor):
        self.session, self.writer = session, writer
        self.pending: Future[Any] | None = None  # the newest save, made by a thread of rank 0
        self.snapshot: dict[str, Any] = {}  # the copied state; the next copy reuses its memory

    def save(self) -> None:
        """Copy the state after waiting for the checkpoint before, and start to write the copy.

        The checkpoint has no scores yet.
        """
        self.wait()
        session = self.session
        progress, files = session.progress, session.corpus.files
        meta = {
            "update": progress.updates,
            "position": progress.position,
            "batches": session.recipe.train.accumulate * session.world.size,
            "device": session.world.device.type,
            "loss": None,
            "score": None,
            "history": [validation._asdict() for validation in session.history],
            "vocabulary": files[VOCABULARY]["sha256"],
            "text": files[TOKENS]["sha256"],  # a position means nothing in another text
        }

        if session.world.is_rank_zero:
            state = {
                "optimizer": session.optimizer.state_dict(),
                "scaler": session.scaler.state_dict(),
            }
            parts = {"weights": named_weights(session.model), "state": state}
            self.snapshot = copy_state(parts, self.snapshot)
            self.pending = self.writer.submit(
                session.checkpoints.write, progress.checkpoint_name, **self.snapshot, meta=meta
            )

    def wait(self) -> None:
        """Wait until the newest save is on the disk; raise UserError if it was not written."""
        pending = self.pending
        self.session.world.on_rank_zero(lambda: pending.result() if pending else None)

    def add_validation(self) -> None:
        """Add the newest validation to the newest checkpoint, and delete those that are not kept.

        The thread does so once the checkpoint is written.
        """
        session, earlier = self.session, self.pending
        name, validation = session.progress.checkpoint_name, session.history[-1]

        def write() -> None:
            if earlier:
                earlier.result()
            session.checkpoints.add_validation(name, validation)
            session.checkpoints.prune(session.recipe.train.keep_checkpoints)

        if session.world.is_rank_zero:
            self.pending = self.writer.submit(write)


def copy_state(state: Any, earlier: Any = None) -> Any:
    """Return a state with its tensors copied to the CPU, into the memory of an earlier copy."""
    if isinstance(state, torch.Tensor):
        copy = torch.empty_like(state, device="cpu") if earlier is None else earlier
        return copy.copy_(state)
    if isinstance(state, dict):
        earlier = earlier or {}
        return {key: copy_state(each, earlier.get(key)) for key, each in state.items()}
    return state
