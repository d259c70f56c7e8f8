// The window of a depthwise convolution slides over one channel.
class SlidingWindow extends Moving {
  controls() { return slider("t", "output position t", 0, this.data.x.length - 1, 1, 0); }
  draw() {
    const { x, kernel, pad_left: padLeft } = this.data, T = x.length, K = kernel.length;
    const t = this.value("t"), w = (this.wide - 58) / (T + K - 1), left = 53 + w * padLeft;
    const scale = 40 / Math.max(...x.map(Math.abs));
    const y = x.map((_, t) => kernel.reduce((sum, k, j) => sum + k * (x[t + j - padLeft] ?? 0), 0));
    const tall = 40 / Math.max(...y.map(Math.abs)), thick = 30 / Math.max(...kernel.map(Math.abs));
    const at = i => left + i * w;
    const terms = kernel.map((k, j) => `${number(k)} × ${number(x[t + j - padLeft] ?? 0)}`);
    this.show(this.wide, 290, "an input, a kernel under it, and the outputs so far",
      x.map((v, i) => bar(at(i) + 2, 55, w - 4, v, scale, "bar")).join("")
      + rect(at(t - padLeft), 8, K * w, 94, "", 'fill="none" stroke="var(--role)" stroke-width="2"')
      + kernel.map((k, j) => bar(at(t - padLeft + j) + 2, 145, w - 4, k, thick, "role")).join("")
      + y.map((v, i) => i <= t ? bar(at(i) + 2, 235, w - 4, v, tall, i === t ? "role" : "bar") : "").join("")
      + [["input", 55], ["kernel", 145], ["output", 235]].map(([name, h]) => text(25, h + 4, name)).join("")
      + x.map((_, i) => text(at(i) + w / 2, 285, i)).join("")
      + [55, 145, 235].map(h => `<line class="line" x1="${at(0)}" x2="${at(T)}" y1="${h}" y2="${h}"/>`).join(""),
      `y[${t}] = ${terms.join(" + ")} = ${number(y[t])}`);
  }
}
