// A mixing matrix, one row at a time: how much of each input word goes into one output.
class MixingRow extends Moving {
  controls() {
    const T = this.data.words.length;
    return slider("t", "output position t", 0, T - 1, 1, T >> 1);
  }
  connectedCallback() {
    super.connectedCallback();
    this.root.querySelector("svg").addEventListener("click", event => {
      const row = event.target.closest("[data-t]");
      if (row) { this.root.querySelector("input").value = row.dataset.t; this.draw(); }
    });
  }
  draw() {
    const { words, M } = this.data, T = words.length, t = this.value("t"), row = M[t], size = 26;
    const most = Math.max(...M.flat().map(Math.abs)) || 1, at = s => 26 + (s + .5) * size;
    const { narrow } = this, wide = T * size;  // on a phone the matrix is below
    const [left, top] = narrow ? [4, wide + 58] : [290, 26];
    const word = (s, x, anchor) => `<text x="${x}" y="${at(s) + 4}" style="text-anchor: ${anchor};
      font-size: ${Math.min(14, 170 / words[s].length)}px; font-weight: ${anchor === "start" && s === t ? 700 : 400}">${escaped(words[s])}</text>`;
    const ribbon = (k, s) => k ? `<path d="M106 ${at(s)} C 145 ${at(s)}, 145 ${at(t)}, 184 ${at(t)}" fill="none"
      stroke="var(--role)" stroke-width="${1 + 12 * Math.abs(k) / most}" ${k < 0 ? 'stroke-dasharray="4 3"' : ""}/>` : "";
    const terms = row.map((k, s) => [k, `${number(Math.abs(k))} ${words[s]}`]).filter(([k]) => k);
    const said = terms.map(([k, term], i) => (k < 0 ? "− " : i ? "+ " : "") + term).join(" ") || "0";
    this.root.querySelector("input").setAttribute("aria-valuetext", `${t}, ${words[t]}`);
    this.show(narrow ? Math.max(290, wide + 8) : 296 + wide, top + wide + 6, "input words, output words, and the mixing matrix with the row of one output",
      [[70, 26, "inputs"], [222, 26, "outputs"], [left + wide / 2, top, "matrix"]].map(([x, y, name]) => text(x, y - 12, name)).join("")
      + row.map(ribbon).join("") + words.map((_, s) => word(s, 100, "end") + word(s, 190, "start")).join("")
      + matrix(M.map(r => r.map(k => k && .15 + .85 * Math.abs(k) / most)), left, top, size, t)
      + words.map((_, s) => `<g data-t="${s}" fill="transparent" style="cursor: pointer">${
        rect(0, 26 + s * size, 104, size, "") + rect(186, 26 + s * size, 104, size, "") + rect(left, top + s * size, wide, size, "")}</g>`).join(""),
      `output ${t}, “${words[t]}” = ${said}; the weights sum to ${number(row.reduce((a, b) => a + b, 0))}`);
  }
}
