// A block of CUDA threads steps through its tile and halo: what it reads and writes, and where.
class BlockTrace extends Moving {
  controls() {
    return '<button type="button" aria-pressed="false">play</button> '
      + slider("step", "step", 1, this.data.steps.length, 1, 1);
  }
  connectedCallback() {
    super.connectedCallback();
    const step = this.root.querySelector("input");
    step.addEventListener("input", () => this.play(false));
    this.root.querySelector("button").addEventListener("click", () => {
      if (step.value === step.max) { step.value = 1; this.draw(); }
      this.play(!this.timer);
    });
  }
  disconnectedCallback() { this.play(false); }
  play(on) {
    clearInterval(this.timer);
    this.timer = on && setInterval(() => this.next(this.root.querySelector("input")), 900);
    this.root.querySelector("button").setAttribute("aria-pressed", on);
  }
  next(step) {
    step.stepUp();
    this.draw();
    if (step.value === step.max) this.play(false);
  }
  draw() {
    const { rows, steps, halo } = this.data, now = this.value("step") - 1;
    const [phase, row, write, bytes, width, cells] = steps[now];
    const left = this.narrow ? 60 : 76, room = this.wide - left - 4;
    const w = Math.min(28, room / Math.max(...rows.map(r => r[2])));
    const moved = [[0, 0], [0, 0]], touched = rows.map(() => new Set()), lit = new Map();
    steps.slice(0, now + 1).forEach(([, r, write, bytes, width, cells]) => {
      moved[rows[r][1]][write] += bytes;
      for (const [, cell] of cells) for (let i = 0; i < width; i++) touched[r].add(cell + i);
    });
    for (const [thread, cell] of cells) for (let i = 0; i < width; i++) {
      lit.set(cell + i, [...lit.get(cell + i) ?? [], thread]);
    }
    const who = threads => threads.length > 1 ? `${threads.length}×` : threads[0];
    const drawn = rows.map(([name, shared, length], r) => {
      const y = 22 + 58 * r, outer = i => shared && (i < halo[0] || i >= length - halo[1]);
      return text(36, y + 11, escaped(name)) + text(36, y + 25, shared ? "shared" : "global")
        + Array.from({ length }, (_, i) => {
          const x = left + i * w, here = r === row && lit.has(i);
          const border = here && write ? 'stroke-width="3"' : outer(i) ? 'stroke-dasharray="3 3"' : "";
          return rect(x + 1, y, w - 2, 26, here ? "role" : touched[r].has(i) ? "bar" : "",
                      `stroke="currentColor" ${here || touched[r].has(i) ? "" : 'fill="none"'} ${border}`)
            + (here ? `<text x="${x + w / 2}" y="${y + 17}" style="fill: black; font-size: ${Math.min(12, .8 * w)}px">${who(lit.get(i))}</text>` : "")
            + (w > 15 || i % 4 === 0 ? text(x + w / 2, y + 39, i) : "");
        }).join("") + (shared && halo[0] ? text(left + halo[0] * w / 2, y - 5, "halo") : "")
        + (shared && halo[1] ? text(left + (length - halo[1] / 2) * w, y - 5, "halo") : "");
    }).join("");
    const last = steps.at(-1)[0], tick = (room - 12 * last) / steps.length, y = 22 + 58 * rows.length;
    const threads = new Set(cells.map(([thread]) => thread)).size, did = write ? "write" : "read";
    this.root.querySelector("input").setAttribute("aria-valuetext", `${now + 1} of ${steps.length}`);
    this.show(this.wide, y + 32, "arrays in global and shared memory, the cells in use, and the steps so far",
      drawn + text(36, y + 9, "steps") + steps.map(([phase], i) =>
        rect(left + i * tick + 12 * phase, y, tick - 2, 10, i === now ? "role" : i < now ? "bar" : "cell",
             i > now ? 'fill="none"' : "")
        + (i && phase > steps[i - 1][0] ? text(left + i * tick + 12 * phase - 7, y + 26, "barrier") : "")).join(""),
      `step ${now + 1} of ${steps.length}, after ${phase} barrier${phase === 1 ? "" : "s"}: ${threads} `
      + `${threads === 1 ? `thread ${did}s` : `threads ${did}`} ${rows[row][0]}, ${bytes} bytes; so far global `
      + `${moved[0][0]} bytes loaded, ${moved[0][1]} stored, shared ${moved[1][0]} loaded, ${moved[1][1]} stored`);
  }
}
