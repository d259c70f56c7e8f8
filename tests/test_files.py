"""What is told of a disk that refuses, and locks between processes."""

import errno
import fcntl
import os

import pytest

from dynconv.config.files import locked, refusal
from dynconv.errors import UserError


@pytest.mark.parametrize(
    "code, remedy",
    [
        (errno.EROFS, "; give --out DIR"),
        (errno.EACCES, "; give --out DIR"),
        (errno.ENOSPC, "; make room, then the same command"),
        (errno.EIO, ""),
    ],
)
def test_a_refusal_names_the_remedy(code, remedy):
    assert refusal(OSError(code, "No."), "give --out DIR") == f"No.{remedy}"


def test_one_process_holds_a_lock(tmp_path):
    path = tmp_path / ".lock"
    path.write_text("of a killed process")
    told = rf"^busy \(process {os.getpid()} on .+\): wait for it to end"
    with locked(path, "-"), pytest.raises(UserError, match=told), locked(path, "busy"):
        pass
    assert not path.exists()
    with locked(path, "busy"):
        assert path.exists()


def test_a_file_that_its_holder_has_just_removed_is_no_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda *_: os.unlink(tmp_path / ".lock"))
    with pytest.raises(UserError, match="busy"), locked(tmp_path / ".lock", "busy"):
        pass
