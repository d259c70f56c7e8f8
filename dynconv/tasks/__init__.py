"""The two tasks, translation and language modelling: their text, loss and scores.

`task_of` decides which one a recipe describes; others call the task's methods. Only `config`, which
knows no tasks, asks the model (`translates`).
"""

from dynconv.config import Recipe
from dynconv.tasks.language import LanguageModeling
from dynconv.tasks.task import EncodedSplit, SplitScores, Task, Validation
from dynconv.tasks.translation import Translation

__all__ = [
    "EncodedSplit",
    "LanguageModeling",
    "SplitScores",
    "Task",
    "Translation",
    "Validation",
    "task_of",
]


def task_of(recipe: Recipe) -> Task:
    """Return the task of a recipe. Summarisation is a translation task."""
    return Translation(recipe) if recipe.model.translates else LanguageModeling(recipe)
