// TaLK: the window of one word over the cells of all, and the two look-ups that sum it.
class TalkWindow extends Moving {
  controls() {
    const T = this.data.x.length, offset = side => slider(side, `${side} offset`, 0, 1, .01, 0);
    this.sides = ["left", "right"].filter(side => this.data[side]);
    return slider("t", "word", 0, T - 1, 1, T >> 1) + this.sides.map(offset).join("");
  }
  field(name) { return this.root.querySelector(`[name=${name}]`); }
  connectedCallback() {
    super.connectedCallback();
    const svg = this.root.querySelector("svg");
    Object.assign(svg.style, { touchAction: "pan-y", userSelect: "none" });
    let held = "";  // the edge that a finger drags
    const move = event => {
      const place = new DOMPoint(event.clientX, 0).matrixTransform(svg.getScreenCTM().inverse()).x / 50 - 1.2;
      if (event.type === "pointerdown") {
        held = this.sides.reduce((a, b) => Math.abs(place - this.edge[a]) <= Math.abs(place - this.edge[b]) ? a : b);
        svg.setPointerCapture(event.pointerId);
      }
      if (held) this.field(held).value = (held === "left" ? this.t - place : place - this.t - 1) / this.data[`max_${held}`];
      if (held) this.draw();
    };
    svg.onpointerdown = event => {
      const word = event.target.dataset.t;
      if (word) { this.field("t").value = word; this.draw(); } else move(event);
    };
    svg.onpointermove = move;
    svg.onpointerup = svg.onpointercancel = () => { held = ""; };
  }
  draw() {
    const { words, x, max_left: L, max_right: R } = this.data, T = x.length, t = this.value("t");
    for (const side of this.sides) {  // a word's own offsets come and go with it
      if (t === this.t) this.data[side][t] = this.value(side);
      else this.field(side).value = this.data[side][t];
    }
    this.t = t;
    const u = Math.max(t - this.value("left") * L, 0), v = Math.min(t + 1 + (R && this.value("right") * R), T);
    this.edge = { left: u, right: v };
    const S = [0], K = L + R + 1, at = p => 60 + 50 * p;
    x.forEach((k, s) => S.push(S[s] + k));
    const table = p => S[Math.floor(p)] + (p % 1) * (x[Math.floor(p)] ?? 0), sum = table(v) - table(u);
    const share = x.map((_, s) => Math.max(Math.min(v, s + 1) - Math.max(u, s), 0));
    const low = Math.min(...S), up = p => 258 - 120 * (table(p) - low) / (Math.max(...S) - low || 1);
    const terms = share.map((m, s) => m && `${number(m)} × ${+x[s].toFixed(2)}`).filter(m => m);
    const look = p => `<path d="M${at(p)} 36V${up(p)}H${at(T) + 10}" fill="none" stroke="var(--role)" stroke-width="2"/>
      <circle cx="${at(p)}" cy="${up(p)}" r="5" class="role"/>`;
    this.field("t").setAttribute("aria-valuetext", words[t]);
    this.show(80 + 50 * T, 284, "the window over the cells of all words, and the table of sums under it",
      words.map((word, s) => `<text x="${at(s + .5)}" y="${s % 2 ? 28 : 13}" data-t="${s}" style="cursor: pointer; font-weight: ${s === t ? 700 : 400}">${escaped(word)}</text>`
        + rect(at(s), 40, 50, 44, "cell", 'fill="none"') + text(at(s + .5), 67, number(share[s])) + text(at(s + .5), 100, +x[s].toFixed(2))).join("")
      + rect(at(u), 40, 50 * (v - u), 44, "role", 'fill-opacity=".3"')
      + text(30, 67, "share") + text(30, 100, "x") + text(30, 200, "table S")
      + `<path d="M${S.map((_, i) => `${at(i)} ${up(i)}`).join("L")}" fill="none" stroke="currentColor"/>`
      + S.map((_, i) => text(at(i), 280, i)).join("") + look(u) + look(v)
      + rect(at(T) + 8, Math.min(up(u), up(v)), 5, Math.abs(up(u) - up(v)), "role"),
      `“${words[t]}”, places ${number(u)} to ${number(v)}: ${terms.join(" + ")} = S(${number(v)}) − S(${number(u)}) = ${number(table(v))} − ${number(table(u))} = ${number(sum)}; divided by ${K}: ${number(sum / K)}`);
  }
}
