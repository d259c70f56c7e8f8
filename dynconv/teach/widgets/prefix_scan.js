// Prefix sums of T = 2^n numbers, step by step: which cells are added to which at the same time.
const every = (T, d, f) => Array.from({ length: T / d >> 1 }, (_, n) => f((2 * n + 1) * d - 1, (2 * n + 2) * d - 1));
const SCANS = {
  "one after another": T => Array.from({ length: T - 1 }, (_, i) => ({ adds: [[i, i + 1]] })),
  "log-step": T => Array.from({ length: Math.log2(T) }, (_, n) => 2 ** n).map(d =>
    ({ adds: Array.from({ length: T - d }, (_, i) => [i, i + d]) })),
  "work-efficient": T => {
    const halves = Array.from({ length: Math.log2(T) }, (_, n) => 2 ** n);
    return [...halves.map(d => ({ adds: every(T, d, (i, j) => [i, j]) })),
      { adds: [], moves: [[T - 1, T]], clear: T - 1 },  // the total stands aside
      ...halves.reverse().map(d => ({ adds: every(T, d, (i, j) => [i, j]), moves: every(T, d, (i, j) => [j, i]) }))];
  },
};
class PrefixScan extends Moving {
  controls() {
    return "<div>" + Object.keys(SCANS).map((name, i) =>
      `<label><input type="radio" name="scan" value="${name}" ${i === 1 ? "checked" : ""}> ${name}</label>`).join("")
      + "</div>" + slider("step", "step", 0, 1, 1, 0);
  }
  draw() {
    const name = this.root.querySelector(":checked").value, slide = this.root.querySelector("[name=step]");
    const T = this.data.x.length, steps = SCANS[name](T), w = 42, h = 46;
    slide.max = steps.length;
    if (name !== this.name) { this.name = name; slide.value = 0; }
    const now = this.value("step"), rows = [[...this.data.x]];
    for (const { adds, moves = [], clear } of steps.slice(0, now)) {
      const old = rows.at(-1), row = [...old];
      for (const [from, to] of moves) row[to] = old[from];
      for (const [from, to] of adds) row[to] = old[from] + old[to];
      if (clear !== undefined) row[clear] = 0;
      rows.push(row);
    }
    const at = i => 5 + (i + .5) * w, top = k => 20 + k * h, done = steps.slice(0, now);
    const arrow = (k, kind) => ([from, to]) => `<path class="${kind}" d="M${at(from)} ${top(k) + 24} L${at(to)} ${top(k + 1)}"
      stroke="${kind === "add" ? "var(--role)" : "currentColor"}" stroke-width="${k === now - 1 ? 2.5 : 1}"
      opacity="${k === now - 1 ? 1 : .45}" ${kind === "add" ? "" : 'stroke-dasharray="3 3"'}/>`;
    const { adds = [], moves = [], clear } = done.at(-1) ?? {}, fresh = new Set([...adds, ...moves, [0, clear]].map(([, to]) => to));
    const additions = done.reduce((sum, step) => sum + step.adds.length, 0);
    const said = `${name}, step ${now} of ${steps.length}: ${additions} additions, depth ${done.filter(step => step.adds.length).length}`;
    slide.setAttribute("aria-valuetext", said);
    slide.dataset.value = `${now} of ${steps.length}`;
    this.show(10 + (T + 1) * w, 32 + (steps.length + 1) * h - 22, "rows of cells, one for each step, and which cells are added",
      this.data.x.map((_, i) => text(at(i), 13, i)).join("")
      + done.map((step, k) => step.adds.map(arrow(k, "add")).join("") + (step.moves ?? []).map(arrow(k, "move")).join("")).join("")
      + rows.map((row, k) => row.map((value, i) => rect(at(i) - 18, top(k), 36, 24, "value",
        `stroke="currentColor" stroke-opacity=".5" fill="var(--role)" fill-opacity="${k === now && fresh.has(i) ? .35 : 0}"`)
        + text(at(i), top(k) + 17, +value.toFixed(2))).join("")).join(""),
      said + (now < steps.length ? "" : `; the last row is S[${name === "work-efficient" ? 0 : 1}] to S[${T}]`));
  }
}
