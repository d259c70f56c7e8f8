"""Recipes and experiments: the schema, and how YAML fills it."""

from dynconv import export_lazily

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
# so that `config.files` does not load PyTorch
__all__, __getattr__ = export_lazily(__name__, EXPORTS)
