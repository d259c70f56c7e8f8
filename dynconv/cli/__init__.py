"""The command line: `dynconv`, or `python -m dynconv`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dynconv.cli import commands
from dynconv.cli.tuning import tune_cpu
from dynconv.errors import UserError

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it did what it says, 2 for a mistake, 128 + n for signal n, 1 when
    `bench kernels` finds a kernel wrong.
    """
    tune_cpu()
    top = parser()
    try:
        options, rest = top.parse_known_args(arguments)
        if hasattr(options, "overrides"):  # argparse takes no positional that follows an option
            options.overrides += [text for text in rest if not text.startswith("-")]
            rest = [text for text in rest if text.startswith("-")]
        if rest:
            top.error(f"unrecognized arguments: {' '.join(rest)}")
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
    subparsers = top.add_subparsers(required=True, metavar="COMMAND")

    def command(run, name: str, help: str, within=subparsers, **more) -> argparse.ArgumentParser:
        made = within.add_parser(name, help=help, description=help, **more)
        made.set_defaults(run=run)
        return made

    command(
        commands.doctor, "doctor", "Show what is installed, and what is missing and how to get it."
    )

    data = subparsers.add_parser("data", help="List, fetch or prepare corpora.").add_subparsers(
        required=True, metavar="COMMAND"
    )
    command(commands.data_list, "list", "List the corpora, shipped and downloadable.", data)
    fetch = command(
        commands.data_fetch, "fetch", "Download a corpus and verify its checksums.", data
    )
    fetch.add_argument("name")
    fetch.add_argument(
        "--out", type=Path, metavar="DIR", help="where to keep it (default: data/raw/NAME)"
    )
    fetch.add_argument(
        "--from", dest="source", type=Path, metavar="DIR", help="local copies, to take instead"
    )

    prepare = command(
        commands.data_prepare,
        "prepare",
        "Encode a corpus once into files that training maps into memory.",
        data,
    )
    prepare.add_argument(
        "corpus", metavar="NAME", help="a corpus of data list, or a directory of text"
    )
    prepare.add_argument(
        "--languages",
        nargs="+",
        metavar="SUFFIX",
        help="of the text's files: source and target, or that of a language model's text "
        "(default: as the manifest lists them)",
    )
    prepare.add_argument(
        "--vocab-size",
        type=positive,
        nargs="+",
        metavar="N",
        help="types: of both sides together, or of source and of target (default: 32768, or those "
        "of --reuse)",
    )
    prepare.add_argument(
        "--vocabulary",
        choices=("bytes", "bpe", "words"),
        default="bytes",
        help="what it is learned of: byte-pair encoding of any text (default), the same of "
        "tokenised words, or whole words",
    )
    prepare.add_argument(
        "--raw", type=Path, metavar="DIR", help="where data fetch --out has put it"
    )
    prepare.add_argument(
        "--reuse", type=Path, metavar="FILE", help="a vocabulary.json, instead of a new one"
    )
    prepare.add_argument("--out", type=Path, metavar="DIR", help="default: prepared/NAME")

    train = command(
        commands.train_run,
        "train",
        "Train by a recipe. The same command again goes on from the newest checkpoint.",
    )
    with_recipe(train)
    train.add_argument(
        "--list",
        action=Show,
        nargs=0,
        const=commands.train_list,
        help="show all recipes, and stop",
    )
    train.add_argument(
        "--run",
        "--run-dir",  # torchrun has options that begin with --run
        dest="directory",
        type=Path,
        metavar="RUN",
        help="default: runs/RECIPE; under torchrun write --run-dir",
    )
    train.add_argument(
        "--dry-run",
        action="store_true",
        help="print the resolved recipe, count its parameters, rehearse it with a narrow copy of "
        "the model on some shipped text, and stop",
    )

    ablate = command(
        commands.ablate_run,
        "ablate",
        "Train and score the rows of a table, with several seeds. The same command again goes on.",
    )
    ablate.add_argument("name", metavar="NAME", help="a shipped ablation's name, or a YAML file")
    changes(ablate, "replace an entry in the recipes of all rows: train.updates=100")
    ablate.add_argument(
        "--seeds", type=positive, default=3, metavar="N", help="1 to N (default: 3)"
    )
    ablate.add_argument(
        "--run",
        dest="directory",
        type=Path,
        metavar="DIR",
        help="where its runs ROW-SEED are (default: runs/NAME)",
    )
    ablate.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="JSON, a plot beside it (default: data/results/ablate-NAME.json)",
    )
    ablate.add_argument(
        "--list",
        action=Show,
        nargs=0,
        const=commands.ablate_list,
        help="show all ablations, and stop",
    )

    plan = command(
        commands.plan_run,
        "plan",
        "Tell what a recipe needs: parameters, memory, updates and hours.",
    )
    with_recipe(plan)
    plan.add_argument("--gpus", type=positive, default=1, help="default: 1")
    plan.add_argument(
        "--memory", type=amount, default=80.0, metavar="GB", help="of one GPU; default: 80"
    )
    plan.add_argument(
        "--tokens-per-s", type=amount, metavar="X", help="of one GPU, as bench train measures it"
    )

    plot = command(commands.plot_runs, "plot", "Draw the curves of one or more runs.")
    plot.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    plot.add_argument("--output", type=Path, help="PNG, SVG or PDF (default: RUN/curves.png)")

    translate = command(
        commands.translate_file,
        "translate",
        "Translate text: one line out for each line in, in order.",
    )
    translate.add_argument("directory", type=Path, metavar="RUN")
    translate.add_argument("--input", default="-", metavar="FILE", help="default: stdin")
    translate.add_argument("--output", default="-", metavar="FILE", help="default: stdout")
    decoding(translate)

    evaluate = command(
        commands.evaluate_run,
        "evaluate",
        "Score a run on a split of its corpus: outputs, ten of them shown, or perplexity.",
    )
    evaluate.add_argument("directory", type=Path, metavar="RUN")
    evaluate.add_argument("--split", default="test", help="default: test")
    evaluate.add_argument("--corpus", help="other text of the same languages (default: the run's)")
    decoding(evaluate)

    score = command(
        commands.score_files,
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

    bench = subparsers.add_parser("bench", help="Measure.").add_subparsers(
        required=True, metavar="WHAT"
    )
    decode = command(
        commands.bench_decoding,
        "decode",
        "Decode with and without incremental state, in turns, and compare.",
        bench,
    )
    decode.add_argument("directory", type=Path, metavar="RUN")
    decode.add_argument("--sentences", type=positive, help="default: all of the test split")
    decode.add_argument("--rounds", type=positive, default=3, help="default: 3")
    decode.add_argument(
        "--output", type=Path, metavar="FILE", help="JSON (default: data/results/bench-decode.json)"
    )
    decoding(decode)
    operators = command(
        commands.bench_operators,
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
    kernels = command(
        commands.bench_cuda_kernels,
        "kernels",
        "Check the CUDA kernels, then time them beside their floors, attention and PyTorch.",
        bench,
    )
    kernels.add_argument(
        "--shapes",
        type=names,
        default=["10x10x1024x16", "10x100x1024x16", "10x1000x1024x16", "10x10000x1024x16"]
        + ["iwslt", "112x32x1024x16"],
        help="as for bench ops (default: Table 6 of the TaLK paper at B = 10, iwslt, and an update "
        "of wmt16-en-de-dynamic)",
    )
    kernels.add_argument(
        "--dtypes", type=names, default=["float32", "bfloat16"], help="default: float32,bfloat16"
    )
    kernels.add_argument("--operators", type=names, help="default: all that have CUDA kernels")
    kernels.add_argument("--kernel-sizes", type=names, default=["3", "31"], help="default: 3,31")
    kernels.add_argument("--rounds", type=positive, default=30, help="default: 30")
    kernels.add_argument(
        "--plan", action="store_true", help="without a GPU: floors, and what the kernels will take"
    )
    kernels.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="JSON (default: data/results/kernels-DEVICE.json, kernels-plan.json with --plan)",
    )
    training = command(
        commands.bench_training,
        "train",
        "Train for some updates in a scratch directory, and show where the time goes.",
        bench,
    )
    with_recipe(training)
    training.add_argument("--updates", type=positive, default=100, help="default: 100")
    training.add_argument(
        "--synthetic", type=positive, metavar="PAIRS", help="random text instead of the corpus"
    )
    training.add_argument(
        "--output", type=Path, metavar="FILE", help="JSON (default: data/results/bench-train.json)"
    )
    return top


class Show(argparse.Action):
    """Calls `const`, which prints, in place of running the command, as --help does its text."""

    def __call__(self, parser, *_) -> None:
        self.const()
        parser.exit()


def with_recipe(command: argparse.ArgumentParser) -> None:
    """The arguments of every command that takes a recipe."""
    command.add_argument("recipe", help="a shipped recipe's name, or a YAML file")
    changes(command, "replace an entry: train.lr=5e-4")


def changes(command: argparse.ArgumentParser, help: str) -> None:
    """The positional arguments key=value."""
    command.add_argument("overrides", nargs="*", metavar="key=value", help=help)


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


def amount(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def names(text: str) -> list[str]:
    """Names with commas between them."""
    return text.split(",")
