"""The one exception for what a user can get wrong."""


class UserError(ValueError):
    """A mistake in what the user gave (a file, a recipe, an option), told in one line.

    The line names the value and the remedy. The command line prints it without a traceback
    and exits with code 2; in a program it is an ordinary `ValueError`.
    """
