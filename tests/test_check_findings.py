"""The check of the exercise on seeds accepts the right, and says what is wrong."""

from functools import partial
from math import ceil
from statistics import NormalDist

import numpy as np
import pytest
import torch

from dynconv.teach import check
from dynconv.teach.check.findings import FAULTS, _seeds, _Way


def by_hand(delta, sigma, power=0.8):
    z = NormalDist().inv_cdf
    return max(2, ceil(2 * ((z(0.975) + z(power)) * sigma / delta) ** 2))


def by_trying(delta, sigma, power=0.8):
    n, z = 2, NormalDist().inv_cdf
    while delta / (2 / n) ** 0.5 / sigma < z(0.975) + z(power):
        n += 1
    return n


def by_a_float(delta, sigma, power=0.8):
    return float(by_hand(delta, sigma, power))


def by_numpy(delta, sigma, power=0.8):
    return np.int64(by_hand(delta, sigma, power))


def by_torch(delta, sigma, power=0.8):
    return torch.tensor(by_hand(delta, sigma, power))


@pytest.mark.parametrize("right", [by_hand, by_trying, by_a_float, by_numpy, by_torch])
def test_accepts(right, capsys):
    check.seeds_needed(right)
    assert capsys.readouterr().out.startswith("right: ")


@pytest.mark.parametrize("message", FAULTS)
def test_names_the_fault(message):
    with pytest.raises(AssertionError) as error:
        check.seeds_needed(partial(_seeds, way=_Way(**FAULTS[message])))
    assert str(error.value).endswith(f": {message}")


def test_the_nearest_whole_number_is_not_rounded_up():
    with pytest.raises(AssertionError, match="not rounded up"):
        check.seeds_needed(partial(_seeds, way=_Way(whole=round)))


def test_nothing_is_not_a_number():
    with pytest.raises(AssertionError, match="it returns None, not a number"):
        check.seeds_needed(lambda *case: None)


def test_what_no_fault_explains_has_both_numbers():
    with pytest.raises(AssertionError, match="mine 7, theirs 1090$"):
        check.seeds_needed(lambda *case: 7)
