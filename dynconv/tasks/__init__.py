"""The two tasks, translation and language modelling: their text, loss and scores.

Other modules call the task's methods instead of asking which task it is.
"""

from dynconv.config import Recipe
from dynconv.tasks.language import LanguageModeling
from dynconv.tasks.task import EncodedSplit, Outcome, Task, Validation
from dynconv.tasks.translation import Translation

__all__ = [
    "EncodedSplit",
    "LanguageModeling",
    "Outcome",
    "Task",
    "Translation",
    "Validation",
    "task_of",
]


def task_of(recipe: Recipe) -> Task:
    """Return the task of a recipe. Summarisation is a translation task."""
    if recipe.is_language_model:
        return LanguageModeling(recipe)
    return Translation(recipe)
