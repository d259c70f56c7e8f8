"""The check of the exercise on the encoder's gradient."""

import pytest

from dynconv.teach import check


def scaled(z, share):
    return z.detach() * (1 - share) + z * share


def hooked(z, share):
    z.register_hook(lambda g: share * g)
    return z


def test_scaled_gradient_accepts_the_right(capsys):
    check.scaled_gradient(scaled)
    assert capsys.readouterr().out == "right: z stays as it is, its gradient is 1/2 and 1/5\n"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda z, share: z, r"share = 0.5: gradients .* first at \[0, 0, 0\]"),
        (lambda z, share: z.detach(), "share = 0.5: gradients"),
        (lambda z, share: share * z, "share = 0.5: values differ"),
        (lambda z, share: scaled(z, 0.5), "share = 0.2: gradients"),
        (lambda z, share: scaled(z, 1 - share), "share = 0.2: gradients"),
        (hooked, "share = 0.5, and z also used without you: gradients"),
        (lambda z, share: scaled(z, share)[:1], "share = 0.5: values: mine has shape"),
    ],
    ids=["unchanged", "none", "scaled values", "always half", "the rest", "hook", "shape"],
)
def test_scaled_gradient_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check.scaled_gradient(wrong)
