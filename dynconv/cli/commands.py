"""What each command does, in terms of the package; `dynconv.cli` reads its options.

Imports are inside: a command loads what it needs and no more.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path


def doctor(options) -> None:
    from dynconv.cli.doctor import doctor

    print(doctor())


def data_list(options) -> None:
    from dynconv.text.catalog import corpus_table

    print(corpus_table())


def data_fetch(options) -> None:
    from dynconv.text.fetch import fetch

    fetch(options.name, options.out, options.source)


def data_prepare(options) -> None:
    from dynconv.config import ModelConfig
    from dynconv.text import Vocabularies, prepare
    from dynconv.text.catalog import corpus_sides
    from dynconv.text.sets import SETS, text_of

    source, target = pair(corpus_sides(options.corpus, options.languages), "--languages")
    out = options.out or Path("prepared") / Path(options.corpus).resolve().name
    text = options.corpus
    if text in SETS:
        text, splits = text_of(options.corpus, options.raw, out.with_name(f"{options.corpus}-text"))
        if "train" not in splits:
            print(f"{text}: no training split; dynconv evaluate RUN --corpus {text} uses its test")
            return
    if options.vocab_size:
        of_source, of_target = pair(options.vocab_size, "--vocab-size")
        size = (of_source, of_target) if of_source else of_target
    elif options.reuse:
        size = Vocabularies.load(options.reuse).sizes
    else:
        size = ModelConfig.vocab_size
    corpus = prepare(str(text), source, target, size, out, options.vocabulary, options.reuse)
    sizes = str(list(size)).replace(" ", "") if isinstance(size, tuple) else size
    tokens = f"{corpus.source_tokens:,} {source} and " if source else ""
    print(
        f"{out}: {len(corpus):,} lines, {tokens}{corpus.target_tokens:,} {target} tokens; train "
        f"with data.corpus={out} data.source={source or 'null'} data.target={target} "
        f"data.vocabulary={corpus.kind} model.vocab_size={sizes}"
    )


def pair(values: Sequence, option: str) -> tuple:
    """Source's and target's; of one value, None and that."""
    from dynconv.errors import UserError

    if len(values) > 2:
        raise UserError(f"{option} {' '.join(map(str, values))}: one value, or two, not more")
    return (None, *values) if len(values) == 1 else tuple(values)


def train_list() -> None:
    from dynconv.cli.listing import listing

    print(listing())


def train_run(options) -> int:
    from dynconv.config import load as recipes

    path = recipes.find(options.recipe)
    recipe = recipes.load(path, options.overrides)
    if options.dry_run:
        from dynconv.lab.rehearse import rehearse

        print(recipes.dump(recipe))
        for line in rehearse(recipe):
            print(f"# {line}", flush=True)  # so that all of it is a recipe
        return 0
    from dynconv.train import train

    run = options.directory or Path("runs") / path.stem
    signal = train(recipe, run)
    if signal is not None:
        return 128 + signal
    if os.environ.get("RANK", "0") == "0":
        print(f"run directory: {run} (curves: dynconv plot {run}, or tensorboard --logdir {run})")
    return 0


def ablate_list() -> None:
    from dynconv.lab.experiments import listing

    print(listing())


def ablate_run(options) -> int:
    from dynconv.lab.experiments import ablate

    signal = ablate(
        options.name,
        options.overrides,
        seeds=options.seeds,
        folder=options.directory,
        output=options.output,
        say=lambda text: print(text, flush=True),
    )
    return 0 if signal is None else 128 + signal


def plan_run(options) -> None:
    from dynconv.config import load as recipes
    from dynconv.lab.plan import plan

    recipe = recipes.load(recipes.find(options.recipe), options.overrides)
    print(plan(recipe, options.gpus, options.memory, options.tokens_per_s))


def plot_runs(options) -> None:
    from dynconv.train.plot import plot

    output = options.output or options.runs[0] / "curves.png"
    plot(options.runs, output)
    print(f"curves: {output}")


def trained(options):
    """The model that a decoding command names, with that command's options in its recipe."""
    from dynconv.train import load_model

    loaded = load_model(options.directory, options.checkpoint)
    given = {name: getattr(options, name) for name in ("beam", "lenpen")}
    decode = replace(loaded.recipe.decode, **{k: v for k, v in given.items() if v is not None})
    return loaded._replace(recipe=replace(loaded.recipe, decode=decode))


def translator(options):
    """The same, unless it is a language model."""
    from dynconv.errors import UserError

    loaded = trained(options)
    if loaded.recipe.data.source is None:
        raise UserError(
            f"{options.directory}: a language model, which has nothing to translate from; "
            "dynconv evaluate gives its perplexity"
        )
    return loaded


def translate_file(options) -> None:
    from dynconv.decode import translate
    from dynconv.text import read_lines
    from dynconv.text.corpus import decode_lines

    recipe, vocabularies, model, _ = translator(options)
    if options.input == "-":
        lines = list(decode_lines(sys.stdin.buffer, "standard input"))
    else:
        lines = read_lines(Path(options.input))
    found = translate(model, vocabularies, lines, recipe.decode, max_source=recipe.data.max_source)
    text = "".join(f"{line}\n" for line in found)
    if options.output == "-":
        print(text, end="", flush=True)
    else:
        Path(options.output).write_text(text, encoding="utf-8")


def evaluate_run(options) -> None:
    from dynconv.decode.evaluate import evaluate

    for line in evaluate(options.directory, trained(options), options.split, options.corpus):
        print(line, flush=True)


def score_files(options) -> None:
    from dynconv.score import report
    from dynconv.text import read_lines

    print(
        report(
            read_lines(options.hypothesis),
            read_lines(options.reference),
            lowercase=options.lowercase,
            tokenized=options.tokenized,
            compound_split=options.compound_split,
            rouge=options.rouge,
        )
    )


def bench_decoding(options) -> None:
    from dynconv.lab.bench import bench_decode

    given = options.directory, options.sentences, options.rounds, options.output
    print(bench_decode(translator(options), *given))


def bench_operators(options) -> None:
    import torch

    from dynconv.lab.bench import bench_ops

    torch.set_num_threads(options.threads)
    for text in bench_ops(
        options.shapes,
        options.operators,
        options.impl,
        kernel_size=options.kernel_size,
        rounds=options.rounds,
        output=options.output,
    ):
        print(text, flush=True)


def bench_cuda_kernels(options) -> int:
    from dynconv.lab.bench.cuda.command import bench_kernels

    wrong = bench_kernels(
        options.shapes,
        options.dtypes,
        options.operators,
        options.kernel_sizes,
        rounds=options.rounds,
        plan=options.plan,
        output=options.output,
        say=lambda text: print(text, flush=True),
    )
    return 1 if wrong else 0


def bench_training(options) -> None:
    from dynconv.lab.bench import bench_train

    print(
        bench_train(
            options.recipe, options.overrides, options.updates, options.synthetic, options.output
        )
    )
