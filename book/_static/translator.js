// The book's translator in JavaScript: its byte-pair encoding, its encoder and decoder, and greedy
// search. The weights are those that `dynconv export` writes; tests/lab/test_export.py compares every
// token with PyTorch's. A vector is a Float32Array; a sequence is an array of vectors.

const EOS = 1;

// Returns the tensors of an exported model by name, {data, shape}; matrices become float32.
async function unpackTensors(model) {
  const packed = Uint8Array.from(atob(model.data.join("")), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const kinds = { int8: Int8Array, uint16: Uint16Array, float32: Float32Array };
  const tensors = {};
  let offset = 0;
  for (const [name, kind, ...shape] of model.tensors) {
    const count = shape.reduce((product, size) => product * size, 1);
    const end = offset + count * kinds[kind].BYTES_PER_ELEMENT;
    tensors[name] = { data: new kinds[kind](buffer.slice(offset, end)), shape };
    offset = end;
  }
  for (const [name, tensor] of Object.entries(tensors)) {
    const scale = tensors[`${name}.scale`]?.data;
    if (scale) {
      const width = tensor.shape[1];
      tensor.data = Float32Array.from(tensor.data, (level, i) => level * scale[Math.floor(i / width)]);
    }
  }
  return tensors;
}

// The byte-level byte-pair encoding of `dynconv.text.vocabulary`, kind bytes.
class Vocabulary {
  constructor(byteIds, merges) {
    this.byteIds = byteIds;
    this.bytes = []; // of each id
    byteIds.forEach((id, byte) => { this.bytes[id] = [byte]; });
    this.ranks = new Map(); // of a pair of ids
    this.results = [];
    for (let rank = 0; 3 * rank < merges.length; rank++) {
      const [left, right, result] = merges.subarray(3 * rank, 3 * rank + 3);
      this.bytes[result] = [...this.bytes[left], ...this.bytes[right]];
      this.ranks.set(left * 65536 + right, rank);
      this.results.push(result);
    }
  }

  encode(text) {
    const space = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
    const words = new RegExp(
      `'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+| ?\\p{N}+| ?[^${space}\\p{L}\\p{N}]+` +
      `|[${space}]+(?![^${space}])|[${space}]+`, "gu");
    const line = text.normalize("NFC");
    if (!line.trim()) return [];
    return (line.startsWith(" ") ? line : ` ${line}`).match(words).flatMap((word) => this.merge(word));
  }

  // Merges the pair that was learned first, until no pair of neighbours is known.
  merge(word) {
    const ids = [...new TextEncoder().encode(word)].map((byte) => this.byteIds[byte]);
    for (;;) {
      let best = Infinity, where = -1;
      for (let i = 0; i + 1 < ids.length; i++) {
        const rank = this.ranks.get(ids[i] * 65536 + ids[i + 1]);
        if (rank < best) [best, where] = [rank, i];
      }
      if (where < 0) return ids;
      ids.splice(where, 2, this.results[best]);
    }
  }

  decode(ids) {
    const bytes = ids.flatMap((id) => this.bytes[id] ?? []);
    return new TextDecoder().decode(new Uint8Array(bytes)).replace(/^ /, "").replaceAll("\n", " ");
  }
}

class Linear {
  constructor(tensors, name) {
    this.weight = tensors[`${name}.weight`].data;
    [this.outputs, this.inputs] = tensors[`${name}.weight`].shape;
    this.bias = tensors[`${name}.bias`]?.data;
  }

  apply(x) {
    const { weight, bias, inputs, outputs } = this;
    const y = new Float32Array(outputs);
    for (let o = 0, w = 0; o < outputs; o++) {
      let even = bias ? bias[o] : 0, odd = 0; // two sums, which a processor adds side by side
      for (let i = 0; i + 1 < inputs; i += 2, w += 2) {
        even += weight[w] * x[i];
        odd += weight[w + 1] * x[i + 1];
      }
      if (inputs % 2) even += weight[w++] * x[inputs - 1];
      y[o] = even + odd;
    }
    return y;
  }
}

class LayerNorm {
  constructor(tensors, name) {
    this.weight = tensors[`${name}.weight`].data;
    this.bias = tensors[`${name}.bias`].data;
  }

  apply(x) {
    const mean = x.reduce((sum, value) => sum + value, 0) / x.length;
    const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
    const scale = 1 / Math.sqrt(variance + 1e-5);
    return x.map((value, c) => (value - mean) * scale * this.weight[c] + this.bias[c]);
  }
}

const add = (x, y) => x.map((value, c) => value + y[c]);

function softmax(scores) {
  const most = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = scores.map((score) => Math.exp(score - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

// Returns sum_j weights[j] values[first + j] for one head's channels, into y. Positions outside the
// sentence count as zeros.
function mixHead(weights, values, first, head, width, y) {
  for (let j = 0; j < weights.length; j++) {
    const value = values[first + j];
    if (!value) continue;
    for (let c = head * width; c < (head + 1) * width; c++) y[c] += weights[j] * value[c];
  }
}

// Attention of one query over keys and values; returns its output and the weights of each head.
function attend(query, keys, values, heads) {
  const width = query.length / heads, y = new Float32Array(query.length), kernels = [];
  for (let head = 0; head < heads; head++) {
    const scores = new Float32Array(keys.length);
    keys.forEach((key, s) => {
      let score = 0;
      for (let c = head * width; c < (head + 1) * width; c++) score += query[c] * key[c];
      scores[s] = score / Math.sqrt(width);
    });
    kernels.push(softmax(scores));
    mixHead(kernels[head], values, 0, head, width, y);
  }
  return [y, kernels];
}

// A mixer has `memory()`, what it keeps of a sentence; `read(x, memory)`, which adds a position; and
// `mix(t, memory)`, which returns the output at position t. An encoder reads all positions before
// it mixes; a decoder mixes each as soon as it is read. The memory's `kernels[t]` is
// {first, weights}: weights[head][j] is how much of position first + j is in output t.
class DynamicConv {
  constructor(tensors, name, heads, width, causal) {
    this.input = new Linear(tensors, `${name}.in_proj.linear`);
    this.kernel = new Linear(tensors, `${name}.kernel_proj`);
    this.output = new Linear(tensors, `${name}.out_proj`);
    Object.assign(this, { heads, width, padLeft: causal ? width - 1 : (width - 1) / 2 });
  }

  memory() { return { values: [], kernels: [] }; }

  read(x, memory) {
    const both = this.input.apply(x), C = both.length / 2;
    memory.values.push(both.slice(0, C).map((value, c) => value / (1 + Math.exp(-both[C + c]))));
  }

  mix(t, memory) {
    const { heads, width } = this, x = memory.values[t], first = t - this.padLeft;
    const logits = this.kernel.apply(x), y = new Float32Array(x.length), weights = [];
    for (let head = 0; head < heads; head++) {
      weights.push(softmax(logits.subarray(head * width, (head + 1) * width)));
      mixHead(weights[head], memory.values, first, head, x.length / heads, y);
    }
    memory.kernels[t] = { first, weights };
    return this.output.apply(y);
  }
}

class SelfAttention {
  constructor(tensors, name, heads) {
    this.input = new Linear(tensors, `${name}.in_proj`);
    this.output = new Linear(tensors, `${name}.out_proj`);
    this.heads = heads;
  }

  memory() { return { queries: [], keys: [], values: [], kernels: [] }; }

  read(x, memory) {
    const all = this.input.apply(x), C = x.length;
    memory.queries.push(all.subarray(0, C));
    memory.keys.push(all.subarray(C, 2 * C));
    memory.values.push(all.subarray(2 * C));
  }

  mix(t, memory) {
    const [y, weights] = attend(memory.queries[t], memory.keys, memory.values, this.heads);
    memory.kernels[t] = { first: 0, weights };
    return this.output.apply(y);
  }
}

class CrossAttention {
  constructor(tensors, name, heads) {
    this.query = new Linear(tensors, `${name}.query_proj`);
    this.source = new Linear(tensors, `${name}.memory_proj`);
    this.output = new Linear(tensors, `${name}.out_proj`);
    this.heads = heads;
  }

  project(states) {
    const both = states.map((state) => this.source.apply(state)), C = states[0].length;
    return [both.map((x) => x.subarray(0, C)), both.map((x) => x.subarray(C))];
  }

  apply(x, [keys, values]) {
    return this.output.apply(attend(this.query.apply(x), keys, values, this.heads)[0]);
  }
}

// A block of the encoder, or with `cross` of the decoder; every sub-layer reads a normalised input
// and adds to it.
class Block {
  constructor(tensors, name, mixer, cross = null) {
    this.mixer = mixer;
    this.cross = cross;
    const norms = ["mixer", ...(cross ? ["cross"] : []), "ffn"];
    this.norms = Object.fromEntries(
      norms.map((part) => [part, new LayerNorm(tensors, `${name}.around_${part}.norm`)]));
    this.linear1 = new Linear(tensors, `${name}.ffn.linear1`);
    this.linear2 = new Linear(tensors, `${name}.ffn.linear2`);
  }

  read(x, memory) { this.mixer.read(this.norms.mixer.apply(x), memory); }

  // Returns the output at position t, whose input is x.
  mix(t, x, memory, source = null) {
    x = add(x, this.mixer.mix(t, memory));
    if (this.cross) x = add(x, this.cross.apply(this.norms.cross.apply(x), source));
    const hidden = this.linear1.apply(this.norms.ffn.apply(x)).map((value) => Math.max(value, 0));
    return add(x, this.linear2.apply(hidden));
  }
}

class Translator {
  // Unpacks an exported model: an entry of `dynconvModels`.
  static async load(model) { return new Translator(model, await unpackTensors(model)); }

  constructor({ config, about }, tensors) {
    this.about = about;
    this.config = config;
    this.vocabulary = new Vocabulary(tensors.bytes.data, tensors.merges.data);
    this.table = new Linear(tensors, "target_embedding"); // also the output's weights
    const mixer = (name, width, causal) => width
      ? new DynamicConv(tensors, `${name}.mixer`, config.heads, width, causal)
      : new SelfAttention(tensors, `${name}.mixer`, config.heads);
    this.encoder = config.encoder.map((width, i) =>
      new Block(tensors, `encoder.${i}`, mixer(`encoder.${i}`, width, false)));
    this.decoder = config.decoder.map((width, i) =>
      new Block(tensors, `decoder.${i}`, mixer(`decoder.${i}`, width, true),
        new CrossAttention(tensors, `decoder.${i}.cross`, config.heads)));
    this.encoderNorm = new LayerNorm(tensors, "encoder_norm");
    this.decoderNorm = new LayerNorm(tensors, "decoder_norm");
  }

  // Returns sqrt(C) times the token's embedding plus the sinusoids of its position.
  embed(token, position) {
    const C = this.config.channels, half = Math.floor(C / 2), x = new Float32Array(C);
    for (let c = 0; c < C; c++) x[c] = this.table.weight[token * C + c] * Math.sqrt(C);
    for (let i = 0; i < half; i++) {
      const angle = position * Math.exp((-Math.log(10000) / Math.max(half - 1, 1)) * i);
      x[i] += Math.sin(angle);
      x[half + i] += Math.cos(angle);
    }
    return x;
  }

  // Encodes a sentence; returns its state, with which `next` writes one token after the other.
  start(text) {
    const ids = this.vocabulary.encode(text), source = [...ids, EOS];
    const memories = this.encoder.map((block) => block.mixer.memory());
    let states = source.map((token, t) => this.embed(token, t));
    this.encoder.forEach((block, layer) => {
      states.forEach((x) => block.read(x, memories[layer]));
      states = states.map((x, t) => block.mix(t, x, memories[layer]));
    });
    states = states.map((x) => this.encoderNorm.apply(x));
    return {
      source,
      target: [], // ends with <eos>, once that is written
      logits: null, // of the newest token
      limit: ids.length ? 2 * source.length + 10 : 0,
      projected: this.decoder.map((block) => block.cross.project(states)),
      kernels: {
        source: memories.map((memory) => memory.kernels),
        target: [],
      },
      memories: this.decoder.map((block) => block.mixer.memory()),
    };
  }

  // Appends the likeliest token to the state's target; returns whether the sentence goes on.
  next(state) {
    const t = state.target.length;
    if (t >= state.limit) return false;
    let x = this.embed(t ? state.target[t - 1] : EOS, t);
    this.decoder.forEach((block, layer) => {
      block.read(x, state.memories[layer]);
      x = block.mix(t, x, state.memories[layer], state.projected[layer]);
    });
    state.kernels.target = state.memories.map((memory) => memory.kernels);
    state.logits = this.table.apply(this.decoderNorm.apply(x));
    let best = EOS;
    state.logits.forEach((logit, id) => { if (id > EOS && logit > state.logits[best]) best = id; });
    if (t + 1 === state.limit) best = EOS;
    state.target.push(best);
    return best !== EOS;
  }

  // Returns the ids of a greedy translation, without <eos>.
  translate(text) {
    const state = this.start(text);
    while (this.next(state));
    return state.target.slice(0, -1);
  }
}

globalThis.Translator = Translator;
