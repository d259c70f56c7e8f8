"""Finds the entries of a recipe that have no effect, because of what other entries say."""

from dynconv.config.optimizers import OPTIMIZERS
from dynconv.config.recipe import BEAM_SETTINGS, Recipe
from dynconv.config.schedules import SCHEDULES


def find_unused(recipe: Recipe) -> dict[str, str]:
    """Return the entries that have no effect in this recipe, each with the reason."""
    data, model, train = recipe.data, recipe.model, recipe.train
    unused = {}
    for optimizer in OPTIMIZERS.values():
        for option in optimizer.options:
            if option not in OPTIMIZERS[train.optimizer].options:
                unused[f"train.{option}"] = f"optimizer {train.optimizer} does not use it"
    for schedule in SCHEDULES.values():
        for option in schedule.options:
            if option not in SCHEDULES[train.schedule].options:
                unused[f"train.{option}"] = f"schedule {train.schedule} does not use it"
    if train.warmup == 0:
        unused["train.lr_start"] = "warmup is 0"
    if not recipe.decode.replace_unknown:
        unused["decode.dictionary"] = "replace_unknown is false"
    if model.translates:
        unused["decode.context_window"] = "only a language model reads it"
    else:
        unused["data.max_source_tokens"] = "a language model has no source"
        unused |= {f"decode.{name}": "beam search is for translators" for name in BEAM_SETTINGS}
        if data.block_size is not None:
            unused["data.max_example_tokens"] = "the text is cut into blocks"
    return unused | {f"model.{name}": why for name, why in model.find_unused().items()}
