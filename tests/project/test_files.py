"""What is told of a disk that refuses, files that are replaced, and locks between processes."""

import errno
import fcntl
import os
import threading

import pytest

from dynconv import files
from dynconv.errors import UserError
from dynconv.files import disk_errors, locked, replace_text


@pytest.mark.parametrize(
    "code, remedy",
    [
        (errno.EROFS, "; give --out DIR"),
        (errno.EACCES, "; give --out DIR"),
        (errno.ENOTDIR, "; give --out DIR"),
        (errno.EEXIST, "; give --out DIR"),
        (errno.ENOSPC, "; free some space and try again"),
        (errno.EIO, ""),
    ],
)
def test_a_disk_error_names_the_remedy(code, remedy):
    with pytest.raises(UserError) as error, disk_errors("file", "give --out DIR", kept="as it was"):
        raise OSError(code, "No.")
    assert str(error.value) == f"file: cannot be written (No.){remedy}; as it was"


def test_a_file_that_could_not_be_written_whole_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "file"
    replace_text(path, "old")

    def fills_up(scratch, data):
        scratch.write_bytes(data[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_through", fills_up)
    with pytest.raises(UserError, match=r"file: cannot be written \(No space left"):
        replace_text(path, "newer")
    assert path.read_text() == "old"


def test_a_scratch_folder_belongs_to_one_process(tmp_path):
    with files.scratch_folder(tmp_path / "part") as folder:
        (folder / "half").touch()
        with pytest.raises(UserError, match="part: another process writes there .process"):
            with files.scratch_folder(folder):
                pass
        assert os.listdir(folder).count("half") == 1
    assert not folder.exists()


def test_replacing_a_link_leaves_it_a_link(tmp_path):
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    real.parent.mkdir()
    link.symlink_to(real)
    for text in "one", "two":  # at first what it names is not there
        replace_text(link, text)
        assert link.is_symlink() and real.read_text() == text


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_a_replaced_file_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "private"
    path.touch()
    path.chmod(mode)
    replace_text(path, "text")
    assert path.read_text() == "text" and path.stat().st_mode & 0o777 == mode


def test_a_pipe_or_device_is_written_to_and_not_replaced(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    replace_text(pipe, "text")
    reader.join(timeout=10)
    assert read == ["text"] and pipe.is_fifo()
    with pytest.raises(UserError, match="cannot be written"):
        replace_text(tmp_path, "a directory")


def test_one_process_holds_a_lock(tmp_path):
    path = tmp_path / ".lock"
    path.write_text("process 1, which was killed")
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
