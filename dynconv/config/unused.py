"""Finds the entries of a recipe that have no effect, because of what other entries say."""

from itertools import chain

from dynconv.config.model import OPTIONS, ConvS2SConfig, LanguageModelConfig, ModelConfig
from dynconv.config.optimizers import OPTIMIZERS
from dynconv.config.recipe import BEAM_OPTIONS, Recipe
from dynconv.config.schedules import SCHEDULES
from dynconv.models.mixers import require_mixer


def find_unused(recipe: Recipe) -> dict[str, str]:
    """Return the entries that have no effect in this recipe, each with the reason."""
    data, model, train = recipe.data, recipe.model, recipe.train
    options = {name: optimizer.options for name, optimizer in OPTIMIZERS.items()}
    settings = {name: schedule.settings for name, schedule in SCHEDULES.items()}
    unused = {
        f"train.{option}": f"{kind} {chosen} does not use it"
        for kind, chosen, known in (
            ("optimizer", train.optimizer, options),
            ("schedule", train.schedule, settings),
        )
        for option in chain(*known.values())
        if option not in known[chosen]
    }
    if train.warmup == 0:
        unused["train.lr_start"] = "warmup is 0"
    if isinstance(model, LanguageModelConfig):
        unused["data.max_source"] = "a language model has no source"
        unused |= {f"decode.{name}": "beam search is for translators" for name in BEAM_OPTIONS}
        if data.block_size is not None:
            unused["data.max_length"] = "the text is cut into blocks"
        if not model.cutoffs:
            unused["model.bands"] = "it is for models with cutoffs"
        if model.bands is not None or not model.cutoffs:
            unused["model.factor"] = "it is for models with cutoffs and without bands"
    else:
        unused["decode.context_window"] = "only a language model reads it"
    if isinstance(model, ConvS2SConfig):
        if model.positions == "none":
            unused["model.max_positions"] = "model.positions is none"
    else:
        unused |= {f"model.{name}": why for name, why in find_unused_options(model).items()}
    return unused


def find_unused_options(model: ModelConfig | LanguageModelConfig) -> dict[str, str]:
    """Return the options that no mixer reads, or whose value none of them knows, and why."""
    unused = {name: "no mixer of this model reads it" for name in {*OPTIONS} - model.used_options}
    options = {mixer: require_mixer(mixer).options for mixer in model.mixers}
    for name in model.used_options:
        known = {mixer: taken[name] for mixer, taken in options.items() if name in taken}
        value = getattr(model, name)
        if known and all(values and value not in values for values in known.values()):
            unused[name] = "; ".join(
                f"{mixer} knows only {' and '.join(map(str, values))}"
                for mixer, values in known.items()
                if values
            )
    return unused
