"""The command line: `dynconv`, or `python -m dynconv`."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dynconv.errors import UserError
from dynconv.tuning import tune_cpu

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it did what it says, 2 for a mistake, 130 for ctrl-C."""
    tune_cpu()
    top = parser()
    options, rest = top.parse_known_args(arguments)
    if options.run is train_run:  # argparse takes no positional that follows an option
        options.overrides += [text for text in rest if not text.startswith("-")]
        rest = [text for text in rest if text.startswith("-")]
    if rest:
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        return options.run(options) or 0
    except UserError as error:
        return fail(str(error), 2)
    except KeyboardInterrupt:
        return fail("interrupted", INTERRUPTED)
    except ModuleNotFoundError as error:
        return fail(f"{error.name} is not installed: pip install {error.name}", 2)
    except OSError as error:  # a full disk, a closed pipe, no permission
        return fail(f"{error.filename or 'output'}: {error.strerror or error}", 1)


def fail(message: str, code: int) -> int:
    print(f"dynconv: {message}", file=sys.stderr)
    return code


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(
        prog="dynconv",
        description="Convolutions that compete with self-attention: train, try, score.",
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(run, name: str, help: str, within=commands, **more) -> argparse.ArgumentParser:
        made = within.add_parser(name, help=help, description=help, **more)
        made.set_defaults(run=run)
        return made

    command(doctor, "doctor", "Show what is installed, and what is missing and how to get it.")

    data = commands.add_parser("data", help="List or fetch corpora.").add_subparsers(
        required=True, metavar="COMMAND"
    )
    command(data_list, "list", "List the corpora, shipped and downloadable.", data)
    fetch = command(data_fetch, "fetch", "Download a corpus and verify its checksums.", data)
    fetch.add_argument("name")
    fetch.add_argument("--out", type=Path, help="directory (default: data/raw/NAME)")

    train = command(
        train_run,
        "train",
        "Train by a recipe. The same command again goes on from the newest checkpoint.",
    )
    train.add_argument("recipe", help="a shipped recipe's name, or a YAML file")
    train.add_argument(
        "overrides", nargs="*", metavar="key=value", help="replace an entry: train.lr=5e-4"
    )
    train.add_argument("--run", dest="directory", type=Path, help="default: runs/RECIPE")
    train.add_argument("--dry-run", action="store_true", help="print the resolved recipe and stop")

    plot = command(plot_runs, "plot", "Draw the curves of one or more runs.")
    plot.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    plot.add_argument("--output", type=Path, help="PNG, SVG or PDF (default: RUN/curves.png)")

    translate = command(
        translate_file, "translate", "Translate text: one line out for each line in, in order."
    )
    translate.add_argument("directory", type=Path, metavar="RUN")
    translate.add_argument("--input", default="-", metavar="FILE", help="default: stdin")
    translate.add_argument("--output", default="-", metavar="FILE", help="default: stdout")
    decoding(translate)

    evaluate = command(
        evaluate_run,
        "evaluate",
        "Translate a split of a run's corpus, show ten sentences, score it.",
    )
    evaluate.add_argument("directory", type=Path, metavar="RUN")
    evaluate.add_argument("--split", default="test", help="default: test")
    decoding(evaluate)

    score = command(
        score_files,
        "score",
        "Score translations: sacreBLEU and chrF with 95%% intervals, and what you ask for.",
    )
    score.add_argument("hypothesis", type=Path)
    score.add_argument("reference", type=Path)
    score.add_argument("--lowercase", action="store_true", help="BLEU without case")
    score.add_argument(
        "--tokenized", action="store_true", help="add BLEU of the tokens as they are"
    )
    score.add_argument(
        "--compound-split", action="store_true", help="add tokenised BLEU with hyphens set apart"
    )
    score.add_argument("--rouge", action="store_true", help="add ROUGE-1, 2 and L, stemmed")

    bench = commands.add_parser("bench", help="Measure.").add_subparsers(
        required=True, metavar="WHAT"
    )
    decode = command(
        bench_decoding,
        "decode",
        "Decode with and without incremental state, in turns, and compare.",
        bench,
    )
    decode.add_argument("directory", type=Path, metavar="RUN")
    decode.add_argument("--sentences", type=positive, help="default: all of the test split")
    decode.add_argument("--rounds", type=positive, default=3, help="default: 3")
    decoding(decode)
    operators = command(
        bench_operators,
        "ops",
        "Measure every implementation of the operators beside a copy and attention, by turns.",
        bench,
    )
    operators.add_argument(
        "--shapes",
        type=names,
        default=["10", "100", "1000", "10000", "iwslt"],
        help="lengths as in Table 6 of the TaLK paper (B = 10 or less, C = 1024, H = 16), iwslt, "
        "or BxTxCxH (default: 10,100,1000,10000,iwslt)",
    )
    operators.add_argument("--operators", type=names, help="default: all")
    operators.add_argument("--impl", type=names, help="default: all but loop")
    operators.add_argument("--kernel-size", type=positive, default=31, help="default: 31")
    operators.add_argument("--rounds", type=positive, default=5, help="default: 5")
    operators.add_argument("--threads", type=positive, default=1, help="default: 1")
    operators.add_argument(
        "--output", type=Path, metavar="FILE", help="JSON (default: data/results/bench-ops.json)"
    )
    return top


def decoding(command: argparse.ArgumentParser) -> None:
    """The options of every command that decodes."""
    command.add_argument("--beam", type=positive, help="default: the recipe's decode.beam")
    command.add_argument("--lenpen", type=float, help="default: the recipe's decode.lenpen")
    command.add_argument(
        "--checkpoint", default="best", help="best (default), last, or a name in RUN/checkpoints"
    )


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def names(text: str) -> list[str]:
    """Names with commas between them."""
    return text.split(",")


def doctor(options) -> None:
    from dynconv.doctor import doctor

    print(doctor())


def data_list(options) -> None:
    from dynconv.text.catalog import listing

    print(listing())


def data_fetch(options) -> None:
    from dynconv.text.catalog import fetch

    fetch(options.name, options.out)


def train_run(options) -> int:
    from dynconv import recipe as recipes

    path = recipes.find(options.recipe)
    recipe = recipes.load(path, options.overrides)
    if options.dry_run:
        print(recipes.dump(recipe), end="")
        return 0
    from dynconv.train import train

    run = options.directory or Path("runs") / path.stem
    finished = train(recipe, run)
    if not finished:
        return INTERRUPTED
    print(f"run directory: {run} (curves: dynconv plot {run}, or tensorboard --logdir {run})")
    return 0


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


def translate_file(options) -> None:
    from dynconv.decode import translate
    from dynconv.text import read_lines

    recipe, bpe, model, _ = trained(options)
    lines = read_lines(Path("/dev/stdin" if options.input == "-" else options.input))
    text = "".join(f"{line}\n" for line in translate(model, bpe, lines, recipe.decode))
    if options.output == "-":
        print(text, end="", flush=True)
    else:
        Path(options.output).write_text(text, encoding="utf-8")


def evaluate_run(options) -> None:
    from dynconv.evaluate import evaluate

    for line in evaluate(options.directory, trained(options), options.split):
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
    from dynconv.bench import bench_decode

    print(bench_decode(trained(options), options.sentences, options.rounds))


def bench_operators(options) -> None:
    import torch

    from dynconv.bench import bench_ops

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
