// Which page comes first in a search: the lesson on the subject, then other lessons, then the package's names.
var Scorer = (() => {
  const SUBJECTS = {
    "00_how": /^mix(ing|ers?)( matri(x|ces))?$/,
    "01_bpe": /^(byte.pair.encoding|bpe|tokeni[sz](er|ation)|vocabulary|subwords?)$/,
    "02_batches": /^(padding|(padding )?masks?|masking|batch(es|ing)?)$/,
    "03_attention": /^((self.)?attention|multi.head attention|attention heads?|queries|keys)$/,
    "04_depthwise": /^((depthwise|separable|dense)( convolutions?)?|convolutions?)$/,
    "05_gates": /^(gates?|gating|glu|gated linear units?|convs2s)$/,
    "06_sharing": /^(weight )?sharing$/,
    "07_softmax": /^(softmax|normali[sz](ation|ing))$/,
    "08_dropconnect": /^(dropconnect|dropout|weight dropout)$/,
    "09_lightconv": /^(lightconv|lightweight convolutions?)$/,
    "10_three_ways": /^(toeplitz|band( matrix)?|unfold|im2col)$/,
    "11_dynamicconv": /^(dynamicconv|dynamic convolutions?)$/,
    "13_averaging": /^(average attention|averaging)$/,
    "14_prefix_sums": /^(prefix.sums?|cumsum|summed.area tables?|scan)$/,
    "15_windows": /^(adaptive )?windows?$/,
    "16_gradients": /^(gradients?|backward( pass)?|gradcheck|backpropagation)$/,
    "17_talk": /^talk( convolutions?)?$/,
    "18_roofline": /^(roofline|cuda|arithmetic intensity)$/,
    "19_lightconv_kernels": /^(cuda kernels?|shared memory|coalescing)$/,
    "22_encoder_decoder": /^(encoder|decoder|encoder.decoder|cross.attention|layer ?norm(ali[sz]ation)?|residual( connections?)?)$/,
    "23_recipe": /^(recipe|label smoothing|adam|warm.?up|learning rate|schedule|checkpoint averaging)$/,
    "24_beam": /^(beam( search)?|length penalty|greedy( search)?|incremental decoding|decoding)$/,
    "25_bleu": /^(sacre)?bleu$|^(significance|bootstrap)$/,
    "26_ddp": /^(ddp|data.parallel(ism)?|all.reduce|gradient accumulation|mixed precision|distributed( training)?)$/,
    "27_iwslt": /^(iwslt.*|leak(s|age)?|contamination)$/,
    "28_wmt": /^wmt.*$/,
    "29_language": /^(language models?|perplexity|adaptive softmax|sampling)$/,
    "30_summaries": /^(summar(y|ies|i[sz]ation)|rouge)$/,
    "32_states": /^(state.space( models?)?|states?|s4d?|retention|linear attention)$/,
    "33_forgetting": /^(mamba|selection|selective state spaces?|forget(ting)?|decay)$/,
  };
  const score = ([page, , anchor, , found]) => {
    if (!page.startsWith("lessons/")) return found - 100;
    const query = new URLSearchParams(location.search).get("q") ?? "";
    const wanted = query.trim().toLowerCase().replace(/\s+/g, " ");
    // a lesson is read from its beginning, so its sections come after it
    return found + (SUBJECTS[page.slice(8)]?.test(wanted) ? (anchor ? 200 : 1000) : 0);
  };
  return {
    score,
    // as Sphinx has them
    objNameMatch: 11,
    objPartialMatch: 6,
    objPrio: {0: 15, 1: 5, 2: -5},
    objPrioDefault: 0,
    title: 15,
    partialTitle: 7,
    term: 5,
    partialTerm: 2,
  };
})();
