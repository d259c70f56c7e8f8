"""Samples of a language model, against its own probabilities and its full forward pass."""

import sys

import pytest
import torch
from conftest import sized_stack

from dynconv import cli
from dynconv.config import LanguageModelConfig, StackConfig
from dynconv.decode import next_probabilities, sample
from dynconv.errors import UserError
from dynconv.models import build
from dynconv.models.mixers import MIXERS
from dynconv.text import EOS, PAD
from dynconv.train import load_model, train

PROMPT = [5, 7, 6]
GREEDY = ({"temperature": 0}, {"top_k": 1}, {"top_p": 1e-9})


def model_of(mixer: str, cutoffs: tuple[int, ...] = (8,)):
    torch.manual_seed(1)
    stack = sized_stack(2, mixer, None if mixer == "attention" else 3)
    sizes = {"vocab_size": 20, "channels": 12, "ffn": 16, "heads": 3, "div_value": 2}
    model = build(LanguageModelConfig(decoder=stack, cutoffs=cutoffs, dropout=0.0, **sizes))
    for parameter in model.embedding.parameters():  # neither uniform nor certain
        parameter.data *= 0.7
    return model.eval()


@pytest.mark.parametrize("options", GREEDY, ids=str)
@pytest.mark.parametrize("mixer", MIXERS)
def test_the_greedy_limit_is_the_argmax_of_the_full_pass(mixer, options):
    model = model_of(mixer)
    count = 1 if options.get("temperature") == 0 else 2
    texts = sample(model, PROMPT, samples=count, max_tokens=12, end=None, **options)
    tokens = [EOS, *PROMPT]
    for _ in range(12):
        logp = model(torch.tensor([tokens]))[0, -1].detach()
        logp[PAD] = -torch.inf
        tokens.append(int(logp.argmax()))
    assert texts == [tokens[4:]] * count


def test_each_token_costs_one_step(monkeypatch):
    """The prompt is read in the first; nothing is computed after the last token."""
    model, widths = model_of("light"), []
    step = model.step

    def counting(tokens, state):
        widths.append(tokens.shape[1])
        return step(tokens, state)

    monkeypatch.setattr(model, "step", counting)
    sample(model, PROMPT, max_tokens=3, end=None)
    assert widths == [1 + len(PROMPT), 1, 1]


@pytest.mark.parametrize("temperature", [5e-324, 1e-46, 1e-40, 1e-30, 1e-8])
def test_the_coldest_temperature_leaves_the_likeliest(temperature):
    logp = torch.tensor([[-9.0, -3.0, -1.0, -2.0], [-9.0, -0.5, -4.0, -2.0]])
    found = next_probabilities(logp, temperature)
    assert torch.equal(found, next_probabilities(logp, 0))


def test_a_diverged_model_is_named():
    model = model_of("light")
    for parameter in model.parameters():
        parameter.data.fill_(torch.nan)
    with pytest.raises(UserError, match="not finite: it has diverged in training"):
        sample(model, PROMPT)


def test_samples_follow_the_softmax():
    """Pearson's chi-square of 20,000 first tokens, and of second ones after the commonest first."""
    model, count = model_of("dynamic"), 20_000
    found = sample(model, PROMPT, samples=count, max_tokens=2, end=None)
    first = torch.tensor([ids[0] for ids in found])
    common = int(first.bincount().argmax())
    second = torch.tensor([ids[1] for ids in found if ids[0] == common])
    for drawn, before in ((first, PROMPT), (second, [*PROMPT, common])):
        share = model(torch.tensor([[EOS, *before]]))[0, -1].detach().exp()
        share[PAD] = 0
        share = share / share.sum()
        expected = share * len(drawn)
        seen = drawn.bincount(minlength=20).float()
        assert seen[PAD] == 0
        large = expected > 5
        chi = ((seen - expected)[large] ** 2 / expected[large]).sum().item()
        freedom = int(large.sum()) - 1
        assert freedom >= 4 and chi < freedom + 4 * (2 * freedom) ** 0.5  # mean and deviation


def test_top_p_keeps_the_fewest_tokens_that_have_it():
    logp = torch.tensor([[0.0, 0.1, 0.4, 0.2, 0.3], [0.0, 0.97, 0.01, 0.01, 0.01]]).log()
    share = next_probabilities(logp, top_p=0.65)
    torch.testing.assert_close(share[0], torch.tensor([0, 0, 4 / 7, 0, 3 / 7]))
    torch.testing.assert_close(share[1], torch.tensor([0.0, 1, 0, 0, 0]))
    everything = next_probabilities(logp)
    torch.testing.assert_close(everything, logp.exp())


def test_top_p_is_enough_when_the_likeliest_have_exactly_it():
    share = next_probabilities(torch.tensor([[0.0, 0.25, 0.5, 0.25]]).log(), top_p=0.5)
    assert share.tolist() == [[0, 0, 1, 0]]


def test_the_smallest_top_p_leaves_the_likeliest():
    share = next_probabilities(torch.tensor([[0.0, 0.1, 0.4, 0.5]]).log(), top_p=1e-300)
    assert share.tolist() == [[0, 0, 0, 1]]


def test_temperature_and_top_k_come_before_top_p():
    logp = torch.tensor([[0.0, 0.1, 0.4, 0.2, 0.3]]).log()
    sharp = next_probabilities(logp, temperature=0.5)
    squares = torch.tensor([0, 1, 16, 4, 9])
    torch.testing.assert_close(sharp[0], squares / 30)
    two = next_probabilities(logp, temperature=0.5, top_k=2)
    torch.testing.assert_close(two[0], torch.tensor([0, 0, 16 / 25, 0, 9 / 25]))
    one = next_probabilities(logp, temperature=0.5, top_k=2, top_p=0.6)  # of 16 / 25
    torch.testing.assert_close(one[0], torch.tensor([0.0, 0, 1, 0, 0]))


def test_the_seed_decides():
    model = model_of("light")
    options = {"samples": 3, "max_tokens": 30}
    first = sample(model, PROMPT, **options, seed=7)
    assert sample(model, PROMPT, **options, seed=7) == first
    assert sample(model, PROMPT, **options, seed=8) != first
    assert len({tuple(ids) for ids in first}) == 3  # each draws for itself


def test_samples_end_at_eos():
    model = model_of("light", cutoffs=())
    endless = sample(model, PROMPT, samples=40, max_tokens=30, end=None)
    assert all(len(ids) == 30 for ids in endless) and any(EOS in ids for ids in endless)
    ended = sample(model, PROMPT, samples=40, max_tokens=30)
    assert not any(EOS in ids for ids in ended)
    assert len({len(ids) for ids in ended}) > 5


@pytest.mark.parametrize("mixer", MIXERS)
def test_each_sample_continues_its_own_text_when_others_have_ended(mixer, monkeypatch):
    """At every step the log p of every live sample is that of a full pass over its own text."""
    model, seen = model_of(mixer, cutoffs=()), []

    def recording(logp, *options):
        seen.append(logp)
        return next_probabilities(logp, *options)

    monkeypatch.setattr(sys.modules[next_probabilities.__module__], "next_probabilities", recording)
    found = sample(model, PROMPT, samples=20, max_tokens=15, temperature=3.0)
    assert len({len(ids) for ids in found}) > 4  # they end at different steps
    for step, logp in enumerate(seen):
        live = [ids for ids in found if len(ids) >= step]
        texts = torch.tensor([[EOS, *PROMPT, *ids[:step]] for ids in live])
        torch.testing.assert_close(logp, model(texts)[:, -1].detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samples": 0}, "samples 0"),
        ({"max_tokens": 0}, "max_tokens 0 must be at least 1"),
        ({"top_k": 0}, "top_k 0 must be at least 1"),
        ({"temperature": -1.0}, "temperature -1.0 must be at least 0"),
        ({"temperature": float("nan")}, "temperature nan"),
        ({"top_p": 0.0}, "top_p 0.0 must be above 0"),
        ({"top_p": 1.5}, "top_p 1.5"),
        ({"temperature": 0, "top_k": 5}, "top_k 5 has no effect"),
        ({"temperature": 0, "samples": 3}, "samples 3 has no effect: temperature 0"),
    ],
)
def test_options_without_a_meaning(options, words):
    with pytest.raises(UserError, match=words):
        sample(model_of("light"), PROMPT, **options)
    if not options.keys() & {"samples", "max_tokens"}:
        with pytest.raises(UserError, match=words):
            next_probabilities(torch.zeros(1, 5), **options)


@pytest.fixture(params=[None, 8], ids=["lines", "blocks"])
def language(recipe, corpus, request):
    """A language model of the target text, and how it is cut."""
    from dataclasses import replace

    model = LanguageModelConfig(
        vocab_size=300, channels=32, ffn=32, heads=2, decoder=StackConfig(1, "dynamic", 3)
    )
    data = replace(recipe.data, source=None, target="en", block_size=request.param)
    config = replace(recipe.train, label_smoothing=0.0)
    return replace(recipe, data=data, model=model, train=config, metric="perplexity")


def continued(trained, text, **options):
    """Continue a text by a trained language model."""
    return trained.continue_text(text, **options)


def test_generate_repeats_its_samples_with_a_seed(language, tmp_path, capsys):
    run = tmp_path / "run"
    train(language, run)
    command = ["generate", str(run), "--prompt", "twenty one", "--samples", "3"]
    command += ["--max-tokens", "20", "--seed", "5", "--temperature", "0.9", "--top-p", "0.95"]
    texts = []
    for _ in range(2):
        capsys.readouterr()
        assert cli.main(command) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and texts[0].count("twenty one") >= 3
    trained = load_model(run)
    options = {"samples": 3, "max_tokens": 20, "seed": 5, "temperature": 0.9, "top_p": 0.95}
    found = continued(trained, "twenty one", **options)
    assert texts[0] == "".join(f"{text}\n" for text in found)
    assert all(text.startswith("twenty one") for text in found)
    lines = [text.count("\n") for text in found]
    assert (max(lines) == 0) if language.data.block_size is None else True


def test_blocks_go_on_beyond_a_line(language, tmp_path):
    """Text trained in blocks has many lines; text trained by lines has one."""
    run = tmp_path / "run"
    train(language, run)
    trained = load_model(run)
    trained.model.output.weight.data[EOS] *= 3
    options = {"samples": 20, "max_tokens": 30}
    found = continued(trained, "two\nthree", **options)
    assert all(text.startswith("two\nthree") for text in found)
    assert any(text.count("\n") > 1 for text in found) == (language.data.block_size is not None)


@pytest.mark.parametrize("option", ["--beam", "--lenpen"])
@pytest.mark.parametrize("language", [None], indirect=True)
def test_options_of_a_search_are_refused_for_a_language_model(language, option, tmp_path, capsys):
    train(language, tmp_path / "run")
    capsys.readouterr()
    assert cli.main(["evaluate", str(tmp_path / "run"), option, "3"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert (
        f"decode.{option[2:]} 3" in error
        and "has no effect: beam search is for translators" in error
    )


def test_a_translator_continues_no_prompt(recipe, tmp_path, capsys):
    train(recipe, tmp_path / "run")
    capsys.readouterr()
    assert cli.main(["generate", str(tmp_path / "run")]) == 2
    assert "continues no prompt; use dynconv translate" in capsys.readouterr().err
