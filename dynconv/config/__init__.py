"""Recipes and experiments: the schema, and how YAML fills it."""

from importlib import import_module

EXPORTS = {
    "experiment": ["Experiment", "Row"],
    "load": [
        "differences",
        "dump_recipe",
        "find_experiment",
        "find_recipe",
        "load_experiment",
        "load_recipe",
        "load_row",
        "run_name",
        "shipped_experiments",
        "shipped_recipes",
    ],
    "model": [
        "MODELS",
        "AnyModelConfig",
        "ConvS2SConfig",
        "ConvStackConfig",
        "LanguageModelConfig",
        "ModelConfig",
        "StackConfig",
    ],
    "recipe": ["DataConfig", "DecodeConfig", "Published", "Recipe", "TrainConfig"],
}
_MODULE = {name: module for module, names in EXPORTS.items() for name in names}

__all__ = list(_MODULE)


def __getattr__(name: str):
    """Import a name when it is first used, so that `config.files` does not load PyTorch."""
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE[name]}"), name)
