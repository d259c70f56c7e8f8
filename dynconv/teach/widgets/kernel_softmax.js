// One kernel for all positions: how sharp the softmax makes it, and what is dropped from its matrix.
const LAWS = [
  ["shared", (t, j) => j],
  ["fresh", (t, j, K) => t * K + j],
  ["input (dropout)", (t, j) => t + j],
];
class KernelSoftmax extends Moving {
  controls() {
    return slider("temperature", "temperature", -1, 1, 0.05, 0) + slider("p", "p", 0, 0.9, 0.1, 0)
      + "<div>draws: " + LAWS.map(([name], i) => `<label><input type="radio" name="law" value="${i}" ${i ? "" : "checked"}> ${name}</label>`).join("") + "</div>"
      + '<button type="button">another mask</button>';
  }
  connectedCallback() {
    this.seed = 1;
    super.connectedCallback();
    this.root.querySelector("button").addEventListener("click", () => { this.seed++; this.draw(); });
  }
  draw() {
    const { logits, length: T, pad_left: padLeft } = this.data;
    const temperature = 10 ** this.value("temperature"), p = this.value("p");
    const scaled = logits.map(l => l / temperature), most = Math.max(...scaled);
    const powers = scaled.map(l => Math.exp(l - most)), sum = powers.reduce((a, b) => a + b, 0);
    const kernel = powers.map(v => v / sum);
    let state = this.seed * 2654435761 >>> 0;  // the same masks for every reader
    const K = kernel.length, size = 300 / T, [name, at] = LAWS[this.root.querySelector(":checked").value];
    const draws = Array.from({ length: T * K },
      () => (state = (state * 1664525 + 1013904223) >>> 0) / 2 ** 32);
    const kernels = Array.from({ length: T }, (_, t) =>
      kernel.map((k, j) => draws[at(t, j, K)] < p ? 0 : k / (1 - p)));
    const M = band(kernels, padLeft);
    const { narrow } = this, [left, top] = narrow ? [10, 285] : [280, 10];  // on a phone below
    const sums = M.map(row => row.reduce((a, b) => a + b, 0));
    this.root.querySelector("input").setAttribute("aria-valuetext", number(temperature));
    this.show(narrow ? 370 : 640, narrow ? 595 : 320, "a kernel, its mixing matrix and the sums of the rows",
      kernel.map((k, j) => bar(10 + j * 240 / K, 250, 240 / K - 3, k, 200, "role")
        + text(10 + (j + .5) * 240 / K, 268, number(k))).join("")
      + matrix(M, left, top, size)
      + sums.map((s, t) => text(left + 332, top + (t + .65) * size, number(s))).join(""),
      `temperature ${number(temperature)}, p = ${p.toFixed(1)}, draws: ${name}; right: sums of the rows`);
  }
}
