// What the moving figures share: styles that follow the page's scheme, and a few SVG shapes.
const STYLE = `
  :host { display: block; margin: 1rem 0; font: 14px system-ui, sans-serif; max-width: 40rem; }
  svg { width: 100%; height: auto; display: block; }
  text { fill: currentColor; font-size: 12px; text-anchor: middle; }
  label { display: inline-flex; gap: .4rem; align-items: center; margin: 0 1rem .4rem 0; }
  label > b { min-width: 4ch; font-weight: 400; font-variant-numeric: tabular-nums; }
  button { font: inherit; color: inherit; background: none; border: 1px solid currentColor;
           border-radius: 4px; padding: .1rem .4rem; margin: 0 .15rem .3rem 0; cursor: pointer; }
  button[aria-pressed=true] { background: var(--role); color: black; }
  output { display: block; font-variant-numeric: tabular-nums; }
  .line { stroke: currentColor; opacity: .4; }
  .cell { stroke: currentColor; stroke-opacity: .15; }
  .bar { fill: currentColor; opacity: .35; }
  .role { fill: var(--role); }
  .weight { fill: var(--role); fill-opacity: var(--size); }
  @supports (opacity: pow(1, 1)) { .weight { fill-opacity: pow(var(--size), var(--lift)); } }
`;
const rect = (x, y, width, height, kind, more = "") =>
  `<rect x="${x}" y="${y}" width="${Math.max(width, 0)}" height="${Math.max(height, 0)}" class="${kind}" ${more}/>`;
const text = (x, y, content) => `<text x="${x}" y="${y}">${content}</text>`;
const escaped = word => word.replace(/[&<>"]/g, c => `&#${c.charCodeAt()};`);
const number = value => (Math.abs(value) < 0.005 ? 0 : value).toFixed(2);

// A bar that grows up from `zero` for value > 0, and down for value < 0.
const bar = (x, zero, width, value, scale, kind) =>
  rect(x, value > 0 ? zero - value * scale : zero, width, Math.abs(value) * scale, kind);

// A matrix of squares; the shade is the size of an entry.
const matrix = (M, left, top, size, marked = -1) => M.map((row, t) => row.map((entry, s) =>
  rect(left + s * size, top + t * size, size, size, "cell weight", `style="--size: ${Math.min(Math.abs(entry), 1)}"`)
).join("") + (t === marked
  ? rect(left, top + t * size, row.length * size, size, "", 'fill="none" stroke="currentColor" stroke-width="2"')
  : "")).join("");

// Row t of the mixing matrix: the kernel, laid where its window lies.
const band = (kernels, padLeft) => kernels.map((kernel, t) => kernels.map((_, s) =>
  kernel[s - t + padLeft] ?? 0));

class Moving extends HTMLElement {
  connectedCallback() {
    this.data = JSON.parse(this.getAttribute("data"));
    this.root = this.shadowRoot || this.attachShadow({ mode: "open" });
    this.root.innerHTML = `<style>${STYLE}</style>${this.controls()}<svg role="img"></svg><output></output>`;
    for (const input of this.root.querySelectorAll("input")) {
      input.addEventListener("input", () => this.draw());
    }
    this.draw();
    // What is folded has no width until it is opened, and a page may change its scheme.
    const again = () => { if (this.isConnected) this.draw(); };
    this.resized ??= new ResizeObserver(() => { if (this.clientWidth !== this.drawn) again(); });
    this.resized.observe(this);
    this.themed ??= new MutationObserver(again);
    this.themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }
  get wide() { return Math.min(this.clientWidth || 640, 640); }
  get narrow() { return this.wide < 500; }
  value(name) { return Number(this.root.querySelector(`[name=${name}]`).value); }
  show(width, height, label, shapes, said) {
    // On a dark page, whose text is light, roles have the colours of figures there, and small weights show.
    const light = getComputedStyle(this).color.match(/[\d.]+/g).slice(0, 3).reduce((sum, c) => sum + Number(c), 0) > 384;
    this.style.setProperty("--role", light ? `oklch(from ${this.data.color} max(.18 + .78 * pow(1 - l, .85), .56) c h)` : this.data.color);
    this.style.setProperty("--lift", light ? .6 : 1);
    const svg = this.root.querySelector("svg");
    this.drawn = this.clientWidth;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.style.setProperty("--least", `${.75 * width}px`);  // to be read
    svg.setAttribute("aria-label", label);
    svg.innerHTML = shapes;
    this.root.querySelector("output").textContent = said;
    for (const input of this.root.querySelectorAll("[type=range]")) {
      input.nextElementSibling.textContent = input.dataset.value ?? input.getAttribute("aria-valuetext") ?? input.value;
    }
  }
}
const slider = (name, label, min, max, step, value) =>
  `<label>${label} <input name="${name}" type="range" min="${min}" max="${max}" step="${step}" value="${value}"><b aria-hidden="true"></b></label>`;
