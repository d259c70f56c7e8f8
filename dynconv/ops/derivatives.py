"""Refuses second derivatives where a backward function written by hand would drop them."""

import functools
from collections.abc import Callable

import torch


def first_derivative_only(what: str, remedy: str) -> Callable[[Callable], Callable]:
    """Return a decorator that makes a backward function refuse create_graph=True.

    what    has no second derivative; it begins the message
    remedy  says how the user gets one

    PyTorch's own decorator for this is not enough: it raises only if the autograd engine reaches
    its node, which depends on the inputs that are asked for. Otherwise terms are missing silently.
    """

    def decorate(backward: Callable) -> Callable:
        @functools.wraps(backward)
        def checked(ctx, *gradients):
            if torch.is_grad_enabled():  # only with create_graph=True
                raise NotImplementedError(f"{what} has no second derivative: {remedy}")
            return backward(ctx, *gradients)

        return checked

    return decorate
