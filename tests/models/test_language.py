"""Language models: sizes of the papers, adaptive embeddings and softmax, steps, gradients."""

import pytest
import torch
from conftest import sized_stack

from dynconv.config import LanguageModelConfig
from dynconv.layers import AdaptiveEmbedding, AdaptiveLogSoftmax
from dynconv.models import build
from dynconv.models.embedding import embed_tokens, sinusoids
from dynconv.models.mixers import MIXERS
from dynconv.train.weights import load_weights, named_weights


def millions(layers: int, mixer: str, size=None, **changes) -> float:
    config = LanguageModelConfig(decoder=sized_stack(layers, mixer, size), **changes)
    with torch.device("meta"):
        return sum(p.numel() for p in build(config).parameters()) / 1e6


# Wu et al.: "the first 60K types ... the 100K types ... and the last 633K types"; 793,471 is the
# whole number of others who use this text (Jozefowicz et al. 2016).
BILLION = {
    "vocab_size": 793_471,
    "cutoffs": (60_000, 160_000),
    "band_widths": (1024, 256, 64),
    "heads": 16,
}
WIKITEXT = {"vocab_size": 267736, "cutoffs": (20_000, 60_000)}
BILLION_KERNELS = (15,) * 2 + (31,) * 4 + (63,) * 11
CODE_KERNELS = (3, 5, 7, 15, 31) + (63,) * 12
"""TaLK's released code has these; the paper prints 3, 7, 15, 31, 63 x 12: 16 for 17 layers"""


@pytest.mark.parametrize(
    ("published", "count"),
    [
        # Wu et al. 2019, Table 4.
        pytest.param(331, lambda: millions(16, "attention", **BILLION), id="Billion attention"),
        # With GLU; without, 321.3M.
        pytest.param(
            339, lambda: millions(17, "dynamic", BILLION_KERNELS, **BILLION), id="Billion dynamic"
        ),
        # Lioutas and Guo 2020, Table 5.
        pytest.param(247, lambda: millions(16, "attention", **WIKITEXT), id="WikiText attention"),
        # With GLU and the code's 16 heads; 248.4M with the paper's 8.
        pytest.param(
            255,
            lambda: millions(17, "dynamic", CODE_KERNELS, **WIKITEXT, heads=16),
            id="WikiText dynamic",
        ),
    ],
)
def test_parameter_counts_of_the_papers(published, count):
    assert count() == pytest.approx(published, abs=0.5)


def test_wikitext_talk_is_larger_than_printed():
    """Table 5 prints 240M; with GLU it is 241.8M, and 224.0M without.

    Without the bands' projections, 1.4M, it would be 240.5M: they may not have been counted.
    """
    assert millions(17, "talk", CODE_KERNELS, **WIKITEXT) == pytest.approx(241.8, abs=0.05)
    without = millions(17, "talk", CODE_KERNELS, **WIKITEXT, glu=False)
    assert without == pytest.approx(224.0, abs=0.05)


def small(mixer: str = "dynamic", **changes):
    stack = sized_stack(2, mixer, None if mixer == "attention" else (3, 5))
    bands = {"vocab_size": 20, "cutoffs": (5, 12)}
    config = (
        {"channels": 12, "ffn": 16, "heads": 3, "div_value": 2, "dropout": 0.0} | bands | changes
    )
    torch.manual_seed(0)
    return build(LanguageModelConfig(decoder=stack, **config)).double().eval()


TOKENS = torch.randint(1, 20, (2, 9), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("changes", [{}, {"cutoffs": (), "norm": "post"}, {"final_norm": True}])
@pytest.mark.parametrize("mixer", MIXERS)
def test_steps_equal_the_whole(mixer, changes):
    model = small(mixer, **changes)
    state, parts = model.start(), []
    for part in TOKENS.split([1, 2, 4, 2], dim=1):
        logp, state = model.step(part, state)
        parts.append(logp)
    torch.testing.assert_close(torch.cat(parts, dim=1), model(TOKENS))


@pytest.mark.parametrize("mixer", MIXERS)
def test_nothing_looks_ahead(mixer):
    model, later = small(mixer), TOKENS.clone()
    later[:, 5] = 20 - later[:, 5]
    before, after = model(TOKENS), model(later)
    torch.testing.assert_close(after[:, :5], before[:, :5], rtol=0, atol=1e-14)  # sums differ
    assert (after[:, 5] != before[:, 5]).any()


@pytest.mark.parametrize("embeddings", ["tied", "separate"])
@pytest.mark.parametrize("cutoffs", [(5, 12), ()], ids=["adaptive", "plain"])
def test_loss_is_the_log_probability_of_the_target(cutoffs, embeddings):
    model = small(cutoffs=cutoffs, embeddings=embeddings)
    hidden, target = model.hidden_states(TOKENS).flatten(0, 1), TOKENS.roll(-1, 1).flatten()
    logp = model.output(hidden)
    torch.testing.assert_close(logp.exp().sum(-1), torch.ones(len(target), dtype=torch.float64))
    expected = -logp.gather(1, target[:, None]).squeeze(1)
    torch.testing.assert_close(model.nll(hidden, target), expected)


@pytest.mark.parametrize("embeddings", ["tied", "separate"])
@pytest.mark.parametrize("types", [20, 5], ids=["all bands", "no tail"])
def test_gradients_reach_every_parameter(types, embeddings):
    """Gradients of a tail without targets are zero rather than None, for which DDP would wait."""
    model = small("talk", embeddings=embeddings).train()
    tokens = torch.arange(types)[None]
    model.nll(model.hidden_states(tokens)[0], tokens[0]).sum().backward()
    zero = {name for name, p in model.named_parameters() if not p.grad.any()}
    tails = {"output.words.1", "output.words.2", "output.projections.0", "output.projections.1"}
    if embeddings == "tied":
        tails = {f"embedding.{kind}.{i}" for kind in ("words", "projections") for i in (1, 2)}
    elif types == 5:
        tails |= {f"embedding.{kind}.{i}" for kind in ("words", "projections") for i in (1, 2)}
    assert zero == (tails if types == 5 else set())


@pytest.mark.parametrize(("embeddings", "matrices"), [("tied", 1), ("separate", 2)])
@pytest.mark.parametrize("cutoffs", [(5, 12), ()], ids=["adaptive", "plain"])
def test_tied_parameters_are_shared_and_saved_once(cutoffs, embeddings, matrices):
    model = small(cutoffs=cutoffs, embeddings=embeddings)
    shapes = [tuple(p.shape) for p in model.parameters()]
    for words in ((5, 12), (7, 6), (8, 3)) if cutoffs else ((20, 12),):
        assert shapes.count(words) == matrices
    for projection in ((12, 6), (12, 3)) if cutoffs else ():
        assert shapes.count(projection) == matrices
    with torch.random.fork_rng():
        other = small(cutoffs=cutoffs, embeddings=embeddings)
        torch.nn.init.normal_(next(other.parameters()))
    load_weights(other, named_weights(model), "a test")
    torch.testing.assert_close(other(TOKENS), model(TOKENS), rtol=0, atol=0)


def test_the_released_adaptive_input_and_softmax(golden):
    """They do not scale embeddings: the model multiplies by sqrt(C)."""
    arrays = golden.case("adaptive_input_softmax").arrays
    case = {name: torch.from_numpy(array) for name, array in arrays.items()}
    edges, widths = (0, 5, 12, 20), (16, 4, 1)
    embedding = AdaptiveEmbedding(16, edges, widths).double()
    softmax = AdaptiveLogSoftmax(16, edges, widths, tied=embedding).double()
    with torch.no_grad():
        for i in range(3):
            embedding.words[i].copy_(case[f"ai.embeddings.{i}.0.weight"])
            embedding.projections[i].copy_(case[f"ai.embeddings.{i}.1.weight"])
        softmax.classes.copy_(case["asm.head.class_proj.weight"])
    exact = {"rtol": 1e-9, "atol": 1e-9}
    torch.testing.assert_close(embedding(case["tokens"]), case["emb"], **exact)
    torch.testing.assert_close(softmax(case["hidden"]), case["log_prob"], **exact)


def test_separate_softmax_is_that_of_pytorch():
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(12, 20, [5, 12], div_value=2).double()
    ours = AdaptiveLogSoftmax(12, (0, 5, 12, 20), (12, 6, 3)).double()
    with torch.no_grad():
        words, classes = theirs.head.weight.split([5, 2])
        ours.words[0].copy_(words)
        ours.classes.copy_(classes)
        for i, (project, predict) in enumerate(theirs.tail):
            ours.projections[i].copy_(project.weight.t())
            ours.words[i + 1].copy_(predict.weight)
    hidden, target = torch.randn(20, 12, dtype=torch.float64), torch.arange(20)
    torch.testing.assert_close(ours(hidden), theirs.log_prob(hidden))
    torch.testing.assert_close(ours.nll(hidden, target), -theirs(hidden, target).output)


def test_embeddings_begin_with_variance_one():
    """2 C / (C + w) in a band of width w: 1 where it is as wide as the model, below up to 2."""
    model, types = small(vocab_size=900, cutoffs=(300, 600), channels=240), torch.arange(900)
    x = embed_tokens(model.embedding, types[:, None])[:, 0] - sinusoids(torch.zeros(1), 240)
    for band, width in zip(x.split(300), (240, 120, 60), strict=True):
        assert band.var().item() == pytest.approx(2 * 240 / (240 + width), rel=0.1)


@pytest.mark.parametrize("cutoffs", [(5, 12), ()], ids=["adaptive", "plain"])
def test_the_loss_is_float32_under_autocast(cutoffs):
    model = small(cutoffs=cutoffs).float()
    with torch.autocast("cpu", torch.bfloat16):
        assert embed_tokens(model.embedding, TOKENS).dtype == torch.float32
        hidden = model.hidden_states(TOKENS).flatten(0, 1)
        assert model.output(hidden).dtype == torch.float32
        nats = model.nll(hidden, TOKENS.flatten())
    assert nats.dtype == torch.float32 and nats.isfinite().all()
    exact = model.nll(model.hidden_states(TOKENS).flatten(0, 1), TOKENS.flatten())
    assert nats.mean().item() == pytest.approx(exact.mean().item(), rel=0.02)  # 8 bits of mantissa


@pytest.mark.parametrize(
    "name", ["dropout", "activation_dropout", "weight_dropout", "input_dropout", "softmax_dropout"]
)
def test_dropout_acts_only_in_training(name):
    plain, model = small(), small(**{name: 0.5})
    torch.testing.assert_close(model(TOKENS), plain(TOKENS), rtol=0, atol=0)
    assert not torch.allclose(model.train()(TOKENS), plain(TOKENS))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"heads": 5}, "5 heads do not divide 1024 channels"),
        ({"cutoffs": (60, 20)}, r"cutoffs \[60,20\] must grow, within vocab_size 267736"),
        ({"cutoffs": (0,)}, "^cutoffs.0 0 must be a whole number at least 1 "),
        ({"cutoffs": (20,), "vocab_size": 20}, "must grow, within vocab_size 20"),
        ({"cutoffs": (20,), "band_widths": (1024,)}, "band_widths lists 1 widths for 2 bands"),
        ({"cutoffs": (20,), "band_widths": (512, 64)}, "band_widths begins with 512: .* 1024"),
        ({"cutoffs": (20,), "div_value": 2048}, r"bands of width \[1024,0\]: each must be"),
        ({"div_value": 0}, "^div_value 0 must be a whole number at least 1 "),
    ],
)
def test_bad_configurations_are_named(changes, words):
    with pytest.raises(ValueError, match=words):
        LanguageModelConfig(**changes)


@pytest.mark.parametrize("tied", [AdaptiveEmbedding(8, (0, 2, 5), (4, 2)), None])
def test_a_softmax_whose_first_band_is_narrow_is_refused(tied):
    with pytest.raises(ValueError, match="first band has width 4: it must be 8 wide"):
        AdaptiveLogSoftmax(8, (0, 2, 5), (4, 2), tied=tied)


@pytest.mark.parametrize("token", [-1, 10, 11])
@pytest.mark.parametrize("edges", [(0, 10), (0, 4, 10), (0, 2, 4, 10)])
def test_a_token_outside_of_the_vocabulary_is_refused(edges, token):
    embedding = AdaptiveEmbedding(8, edges, (8, 4, 2)[: len(edges) - 1])
    assert embedding(torch.arange(10)).shape == (10, 8)
    with pytest.raises(IndexError):
        embedding(torch.tensor([token]))


@pytest.mark.parametrize("widths", [(8,), (8, 4, 2)])
@pytest.mark.parametrize("layer", [AdaptiveEmbedding, AdaptiveLogSoftmax])
def test_each_band_needs_a_width(layer, widths):
    with pytest.raises(ValueError, match=f"{len(widths)} widths for 2 bands: give one for each"):
        layer(8, (0, 4, 10), widths)


def test_an_adaptive_softmax_refuses_to_drop_everything():
    with pytest.raises(ValueError, match=r"^dropout 1.0 lies outside \[0, 1\)"):
        AdaptiveLogSoftmax(8, (0, 4, 10), (8, 2), dropout=1.0)
