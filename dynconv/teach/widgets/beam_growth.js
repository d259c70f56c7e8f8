// Beam search: the tree of hypotheses, step by step.
class BeamGrowth extends Moving {
  controls() {
    const last = Math.max(...this.data.record.map(([words]) => words.length));
    return slider("t", "step", 0, last, 1, last);
  }
  connectedCallback() {
    const key = words => JSON.stringify(words), leaves = { n: 0 };
    const made = JSON.parse(this.getAttribute("data")).record;
    this.nodes = new Map([["[]", { words: [], logp: 0, fate: "live", children: [] }]]);
    for (const [words, logp, fate, score] of made) {
      const node = { words, logp, fate, score, children: [], parent: this.nodes.get(key(words.slice(0, -1))) };
      node.parent.children.push(node);
      this.nodes.set(key(words), node);
    }
    const place = node => {  // a row for each leaf; a parent stands in the middle of its children
      const rows = node.children.map(place);
      return node.row = rows.length ? (rows[0] + rows.at(-1)) / 2 : leaves.n++;
    };
    place(this.nodes.get("[]"));
    this.leaves = leaves.n;
    super.connectedCallback();
  }
  draw() {
    const t = this.value("t"), width = this.wide, row = 38;
    const shown = [...this.nodes.values()].filter(node => node.words.length <= t);
    const depth = Math.max(...[...this.nodes.values()].map(node => node.words.length));
    const w = width / (depth + 1), x = node => (node.words.length + .5) * w, y = node => node.row * row + 20;
    const going = shown.filter(node => node.fate === "live" && node.words.length === t);
    const ended = shown.filter(node => node.fate === "finished");
    const kept = new Set();  // what goes on or has ended, and all that it grew from
    for (let node of [...going, ...ended]) for (; node; node = node.parent) kept.add(node);
    const best = ended.reduce((a, b) => !a || b.score > a.score ? b : a, null);
    const shapes = shown.map(node => {
      const faint = kept.has(node) ? "" : 'opacity=".45"', dashed = kept.has(node) ? "" : 'stroke-dasharray="3 3"';
      const edge = node.parent ? `<line x1="${x(node.parent) + w * .38}" y1="${y(node.parent)}" x2="${x(node) - w * .42}" y2="${y(node)}" stroke="currentColor" ${faint} ${dashed}/>` : "";
      const box = node.fate !== "finished" ? "" : rect(x(node) - w * .42, y(node) - 17, w * .84, 34, node === best ? "role" : "",
        node === best ? 'fill-opacity=".25"' : 'fill="none" stroke="currentColor"');
      const word = escaped(node.words.at(-1) ?? "start");
      return `${edge}${box}<g ${faint} data-kept="${kept.has(node)}">${text(x(node), y(node) - 3, word)}`
        + `${text(x(node), y(node) + 11, node.fate === "finished" ? `s ${number(node.score)}` : number(node.logp))}</g>`;
    });
    const name = node => `“${node.words.filter(word => word !== "<eos>").join(" ")}”`;
    this.show(width, this.leaves * row + 4, "the tree of hypotheses after this step", shapes.join(""),
      `step ${t}: ${going.length ? `goes on with ${going.map(node => `${name(node)} ${number(node.logp)}`).join(", ")}` : "nothing goes on"}; `
      + (best ? `finished ${ended.length}, the best ${name(best)} with score ${number(best.score)}` : "nothing has finished"));
  }
}
