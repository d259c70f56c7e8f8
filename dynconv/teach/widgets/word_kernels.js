// DynamicConv: click a word, and see the kernel it has made for itself.
class WordKernels extends Moving {
  controls() {
    return `<div role="group" aria-label="words">${this.data.words.map((word, t) =>
      `<button type="button" data-t="${t}">${escaped(word)}</button>`).join("")}</div>`;
  }
  connectedCallback() {
    this.t = 0;
    super.connectedCallback();
    for (const button of this.root.querySelectorAll("button")) {
      button.addEventListener("click", () => { this.t = Number(button.dataset.t); this.draw(); });
    }
  }
  draw() {
    const { words, kernels, pad_left: padLeft } = this.data, T = words.length;
    const M = band(kernels, padLeft), size = 280 / T, w = 320 / T, row = M[this.t];
    const most = Math.max(...kernels.flat());
    const { narrow } = this, [left, top] = narrow ? [30, 300] : [350, 10];  // on a phone below
    for (const button of this.root.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", Number(button.dataset.t) === this.t);
    }
    const seen = row.map((k, s) => [k, words[s]]).filter(([k]) => k).sort((a, b) => b[0] - a[0]);
    this.show(narrow ? 340 : 640, narrow ? 590 : 300, "the kernel of one word, and the mixing matrix with its row",
      row.map((k, s) => bar(10 + s * w + 2, 200, w - 4, k, 180 / most, "role")).join("")
      + `<line class="line" x1="10" x2="330" y1="200" y2="200"/>`
      + words.map((word, s) => `<text transform="translate(${10 + (s + .6) * w} 210) rotate(60)" style="text-anchor: start">${escaped(word)}</text>`).join("")
      + matrix(M.map(r => r.map(k => k / most)), left, top, size, this.t),
      `“${words[this.t]}” takes ${seen.map(([k, word]) => `${number(k)} ${word}`).join(", ")}`);
  }
}
