"""Right and wrong answers to the exercise on mixing matrices."""

import torch

from dynconv.teach import mixing_matrix


def in_double(mix, T):
    eye = torch.eye(T, dtype=torch.float64)
    return torch.stack([mix(eye[s, None, :, None])[0, :, 0] for s in range(T)], dim=1)


def in_one_buffer(mix, T):
    """The impulses of before are never taken back."""
    z, columns = torch.zeros(1, T, 1), []
    for s in range(T):
        z[0, s, 0] = 1
        columns.append(mix(z)[0, :, 0])
    return torch.stack(columns, dim=1)


RIGHT = {"mixing_matrix": [mixing_matrix, in_double]}
WRONG = {
    "mixing_matrix": [
        (lambda mix, T: mix(torch.eye(T)[..., None])[..., 0].T, r"\(1, 3, 1\), not \(3, 3, 1\)"),
        (lambda mix, T: mix(torch.eye(T)[0, :, None]), r"takes \(1, 3, 1\), not \(3, 1\)"),
        (in_one_buffer, r"returns its input: .* first at \[0, 1\]: mine 1, right 0$"),
        (lambda mix, T: torch.eye(T), r"the word before: values differ first at \[0, 0\]"),
    ]
}
