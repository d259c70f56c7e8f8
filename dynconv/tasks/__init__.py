"""What is being learned, translation or language, and what that means for text, loss and scores.

Other modules ask a task and do not compare its kind.
"""

from dynconv.config import LanguageModelConfig, Recipe
from dynconv.tasks.language import LanguageModeling
from dynconv.tasks.task import Evaluation, HeldOut, Task, Validation
from dynconv.tasks.translation import Translation

__all__ = [
    "Evaluation",
    "HeldOut",
    "LanguageModeling",
    "Task",
    "Translation",
    "Validation",
    "task_of",
]


def task_of(recipe: Recipe) -> Task:
    """Return what a recipe trains for; summaries are translations into the same language."""
    return (LanguageModeling if isinstance(recipe.model, LanguageModelConfig) else Translation)(
        recipe
    )
