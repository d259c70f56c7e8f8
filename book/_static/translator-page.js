// The widget around translator.js: a sentence, its translation token by token, and the weights with
// which a chosen head mixes the neighbours of a chosen token. Groups of radio buttons, styled as
// buttons, bring the arrow keys and the names for screen readers.

(() => {
  const HERE = document.currentScript.src;
  const MIXERS = { dynamic: "DynamicConv", attention: "Attention" };
  const EXAMPLES = [
    "Die Datei wird im aktuellen Ordner gespeichert.",
    "Wählen Sie die Zellen aus, die Sie kopieren möchten.",
    "Klicken Sie mit der rechten Maustaste auf das Bild.",
  ];
  const PAUSE = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 90; // ms per token
  const SMALL = 22, LARGE = 36, LABELS = 88; // pixels of the matrix: a cell, and the words
  const LONGEST = 100; // tokens of a sentence

  // Returns an element with attributes and children; names of SVG elements begin with "svg:".
  function make(name, attributes = {}, ...children) {
    const [tag, svg] = [name.replace("svg:", ""), name.startsWith("svg:")];
    const element = svg
      ? document.createElementNS("http://www.w3.org/2000/svg", tag)
      : document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
  const number = (weight) => weight.toFixed(2);

  const loading = {}; // mixer: a promise of its Translator
  function load(mixer) {
    loading[mixer] ??= new Promise((resolve, reject) => {
      const script = make("script", { src: new URL(`translator-${mixer}.js`, HERE) });
      script.onload = () => resolve(Translator.load(dynconvModels[mixer]));
      script.onerror = () => reject(new Error(`translator-${mixer}.js is missing: make it with dynconv export RUN --web book/_static`));
      document.head.append(script);
    });
    return loading[mixer];
  }

  class Page {
    constructor(box) {
      this.box = box;
      this.job = 0; // the newest translation; older ones stop
      this.mixer = "dynamic";
      this.choice = { side: "source", t: 1, layer: 2, head: 0 }; // the widest window
      this.field = make("input", { id: "translator-sentence", lang: "de", autocomplete: "off", spellcheck: "false", value: EXAMPLES[0] });
      this.form = make("form", {},
        make("label", { for: "translator-sentence" }, "A German sentence"),
        make("div", { class: "line" }, this.field, make("button", {}, "Translate")));
      this.form.addEventListener("submit", (event) => { event.preventDefault(); this.translate(); });
      this.examples = make("div", { class: "examples", role: "group", "aria-label": "Examples" },
        ...EXAMPLES.map((text) => {
          const button = make("button", { type: "button", lang: "de" }, text);
          button.addEventListener("click", () => { this.field.value = text; this.translate(); });
          return button;
        }));
      this.models = this.radios("mixer", "Model");
      for (const [mixer, name] of Object.entries(MIXERS)) {
        this.radio(this.models, mixer, name, mixer === this.mixer, () => {
          this.mixer = mixer;
          this.translate();
        });
      }
      this.source = this.radios("token", "German");
      this.target = this.radios("token", "English");
      this.source.lang = "de";
      this.target.lang = "en";
      this.output = make("p", { class: "output", role: "status" });
      this.time = make("p", { class: "time" });
      this.layers = this.radios("layer", "Layer");
      this.heads = this.radios("head", "Head");
      this.caption = make("p", { class: "caption" });
      this.bars = make("ol", { class: "bars", tabindex: 0, "aria-label": "Kernel" });
      this.matrix = make("div", { class: "matrix", tabindex: 0, role: "region", "aria-label": "Mixing matrix" });
      box.replaceChildren(this.form, this.examples, this.models, this.source, this.target,
        this.output, this.time, make("div", { class: "line" }, this.layers, this.heads),
        this.caption, this.bars, this.matrix);
      this.translate();
    }

    radios(name, legend) {
      const group = make("fieldset", { class: name }, make("legend", {}, legend));
      group.dataset.name = `translator-${name}`;
      return group;
    }

    radio(group, value, text, checked, choose) {
      const input = make("input", { type: "radio", name: group.dataset.name, value });
      input.checked = checked;
      input.addEventListener("change", choose);
      const label = make("label", {}, input, make("span", {}, text));
      group.append(label);
      return label;
    }

    clear(group) { group.replaceChildren(group.firstChild); }

    // Adds the button of a token; one that continues a word stands close to its beginning.
    token(side, t, { text, begins }) {
      const { choice } = this;
      const label = this.radio(this[side], `${side}-${t}`, text,
        choice.side === side && choice.t === t, () => {
          Object.assign(choice, { side, t });
          this.draw();
        });
      if (!begins) label.className = "continued";
    }

    name(id) {
      if (id === 1) return { text: "⏎", begins: true };
      const bytes = this.translator.vocabulary.bytes[id];
      const text = new TextDecoder().decode(new Uint8Array(bytes));
      if (text.includes("\ufffd")) { // a part of a character
        return { text: bytes.map((byte) => byte.toString(16)).join(" "), begins: false };
      }
      return { text: text.trim() || "␣", begins: text.startsWith(" ") };
    }

    // Says why there is no translation, and shows nothing else.
    say(reason) {
      for (const group of [this.source, this.target, this.layers, this.heads]) {
        this.clear(group);
        delete group.dataset.names;
      }
      for (const view of [this.caption, this.bars, this.matrix, this.time]) view.replaceChildren();
      this.output.textContent = reason;
    }

    async translate() {
      const job = ++this.job, current = () => job === this.job;
      this.box.dataset.mixer = this.mixer;
      this.box.setAttribute("aria-busy", "true");
      try {
        this.output.textContent = loading[this.mixer] ? "" : "Loading the model …";
        const translator = await load(this.mixer);
        if (!current()) return;
        await this.write(translator, current);
      } catch (error) {
        delete loading[this.mixer];
        this.say(error.message);
      }
      if (current()) this.box.removeAttribute("aria-busy");
    }

    async write(translator, current) {
      const { length } = translator.vocabulary.encode(this.field.value);
      if (!length) return this.say("Type a sentence first.");
      if (length > LONGEST) return this.say(`${length} tokens are too many: shorten the sentence to ${LONGEST}.`);
      const started = performance.now();
      const state = translator.start(this.field.value);
      let busy = performance.now() - started;
      Object.assign(this, { translator, state });
      this.output.textContent = "";
      this.clear(this.source);
      this.clear(this.target);
      if (this.choice.side === "target" || this.choice.t >= state.source.length) {
        Object.assign(this.choice, { side: "source", t: Math.min(1, state.source.length - 1) });
      }
      state.source.forEach((id, t) => this.token("source", t, this.name(id)));
      this.draw();
      for (let more = true; more;) {
        await pause(PAUSE);
        if (!current()) return;
        const begun = performance.now();
        more = translator.next(state);
        busy += performance.now() - begun;
        const t = state.target.length - 1;
        this.token("target", t, this.name(state.target[t]));
        if (this.choice.side === "target") this.draw();
      }
      this.output.textContent = translator.vocabulary.decode(state.target.slice(0, -1));
      const { about } = translator, tokens = state.target.length;
      this.time.textContent = `${tokens} tokens, ${(busy / tokens).toFixed(1)} ms per token in this browser. `
        + `${about.parameters.toLocaleString("en")} weights in 8 bits, ${about.bleu_int8.toFixed(1)} BLEU after ${about.updates.toLocaleString("en")} updates.`;
    }

    // Draws the pickers, the kernel and the matrix of what is chosen.
    draw() {
      const { choice, state, translator } = this;
      const { encoder, decoder, heads } = translator.config;
      const widths = choice.side === "source" ? encoder : decoder;
      choice.layer = Math.min(choice.layer, widths.length - 1);
      this.pick(this.layers, "layer", widths.map((width, i) => width ? `${i + 1} (width ${width})` : `${i + 1}`));
      this.pick(this.heads, "head", Array.from({ length: heads }, (_, i) => `${i + 1}`));

      // In the decoder, the row of a word is the step that wrote it, and the columns are what that
      // step had read: the start, and the words before.
      const rows = state[choice.side].map((id) => this.name(id).text);
      const columns = choice.side === "source" ? rows : ["start", ...rows.slice(0, -1)];
      const kernels = state.kernels[choice.side][choice.layer];
      const mixed = rows.map((_, t) => {
        const { first, weights } = kernels[t];
        return Array.from(weights[choice.head], (weight, j) => ({ weight, s: first + j }));
      });
      this.drawKernel(mixed[choice.t], rows[choice.t], columns);
      this.drawMatrix(mixed, rows, columns);
    }

    pick(group, what, names) {
      if (group.dataset.names === names.join()) return; // keeps the focus
      group.dataset.names = names.join();
      this.clear(group);
      names.forEach((name, i) => this.radio(group, i, name, i === this.choice[what], () => {
        this.choice[what] = i;
        this.draw();
      }));
    }

    drawKernel(taps, row, columns) {
      const { side, layer, head } = this.choice;
      const inside = taps.filter(({ s }) => columns[s] !== undefined);
      const lost = taps.reduce((sum, { weight }) => sum + weight, 0)
        - inside.reduce((sum, { weight }) => sum + weight, 0);
      const most = [...inside].sort((a, b) => b.weight - a.weight).slice(0, 3);
      const does = side === "source" ? `“${row}” is mixed from` : `the step that writes “${row}” mixes`;
      this.caption.textContent = `${side === "source" ? "Encoder" : "Decoder"}, layer ${layer + 1}, head ${head + 1}: ${does} `
        + most.map(({ weight, s }) => `${number(weight)} “${columns[s]}”`).join(", ")
        + (lost > 0.005 ? `; ${number(lost)} of the kernel is outside the sentence.` : ".");
      this.bars.lang = this[side].lang;
      this.bars.replaceChildren(...taps.map(({ weight, s }) => {
        const bar = make("i", { style: `block-size: ${(weight * 6).toFixed(2)}rem` });
        return make("li", columns[s] === undefined ? { class: "outside" } : {},
          make("b", {}, number(weight)), bar, make("span", {}, columns[s] ?? "–"));
      }));
      // On a narrow screen, where the bars scroll, the largest is in the middle.
      const { offsetLeft, offsetWidth } = this.bars.children[taps.indexOf(most[0])];
      this.bars.scrollLeft = offsetLeft + (offsetWidth - this.bars.clientWidth) / 2 - this.bars.offsetLeft;
    }

    drawMatrix(mixed, rows, columns) {
      const most = Math.max(...mixed.flat().map(({ weight }) => weight));
      const room = (this.box.clientWidth - 1.5 * LABELS) / columns.length;
      const cell = Math.min(LARGE, Math.max(SMALL, room));
      const width = LABELS + columns.length * cell + LABELS / 2, height = LABELS + rows.length * cell + 4;
      const svg = make("svg:svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${rows.length} rows of weights; the caption above reads the chosen one` });
      const short = (text) => (text.length > 12 ? `${text.slice(0, 11)}…` : text);
      columns.forEach((text, s) => svg.append(make("svg:text", {
        transform: `translate(${LABELS + (s + 0.6) * cell} ${LABELS - 6}) rotate(-55)` }, short(text))));
      mixed.forEach((taps, t) => {
        const row = make("svg:g", { transform: `translate(0 ${LABELS + t * cell})`, class: "mixed" },
          make("svg:text", { x: LABELS - 6, y: cell * 0.7, "text-anchor": "end" }, short(rows[t])));
        for (const { weight, s } of taps) {
          if (columns[s] === undefined) continue;
          row.append(make("svg:rect", { x: LABELS + s * cell, width: cell, height: cell, style: `--size: ${number(weight / most)}` },
            make("svg:title", {}, `${rows[t]} from ${columns[s]}: ${number(weight)}`)));
        }
        row.addEventListener("click", () => {
          this.box.querySelector(`input[value="${this.choice.side}-${t}"]`)?.click();
        });
        svg.append(row);
      });
      svg.append(make("svg:rect", { class: "chosen", x: LABELS, y: LABELS + this.choice.t * cell, width: columns.length * cell, height: cell }));
      this.matrix.replaceChildren(svg);
    }
  }

  for (const box of document.querySelectorAll(".translator")) new Page(box);
})();
