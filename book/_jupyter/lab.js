// What JupyterLab needs to know of this book; lab.py puts KNOWN, titles and papers, before it.
(() => {
  const MOVING = ".jp-RenderedHTML > script + *";
  const MISSING = '[title="Cross Reference Not Found"], [title="Citation Not Found"]';
  const DEAD = "span:has(> a.hover-link[href='#'])"; // a reference with words of its own
  const WORDED = /\{(?:ref|numref)\}`([^`<]+?)\s*<([\w-]+)>`/g;

  // Lines of text are no wider than can be read, and a title has the number of its lesson.
  const STYLE = `
    .jp-MarkdownCell :is(p, ul, ol, blockquote, aside, details) { max-width: 80ch; }
    h1[data-number]::before { content: attr(data-number) " "; }
  `;

  // The label stays in the page, hidden, because React owns it; a link follows it.
  const link = (app, missing, label = missing.textContent.trim(), words = undefined) => {
    const next = missing.nextElementSibling;
    if (next?.dataset.label === label) return;
    if (next?.dataset.label) next.remove();
    const made = document.createElement("a");
    made.dataset.label = label;
    const paper = KNOWN.papers[label], reference = KNOWN.references[label];
    if (missing.title.startsWith("Citation") && paper) {
      const narrative = missing.closest(".cite-group")?.classList.contains("narrative");
      made.textContent = `${paper.authors}${narrative ? ` [${paper.year}]` : `, ${paper.year}`}`;
      made.title = paper.title;
      if (paper.address) Object.assign(made, {href: paper.address, target: "_blank", rel: "noopener"});
    } else if (reference) {
      made.textContent = words ?? reference.text;
      if (reference.notebook || reference.page) open(app, made, reference);
    } else return;
    missing.hidden = true;
    missing.style.display = "none";
    missing.after(made);
  };

  // A lesson opens beside this one; a page of the book, which has no code, as text to read.
  const open = (app, made, {notebook, page}) => {
    const here = app.shell.currentWidget?.context?.path ?? "";
    const folder = here.slice(0, here.lastIndexOf("/") + 1);
    if (page && !folder) return; // the book is outside what this server shows
    const above = folder.replace(/[^/]+\/$/, "");
    const path = folder ? above + (page ?? notebook) : notebook.split("/").at(-1);
    made.href = location.href.replace(/\/tree\/.*|[?#].*/, "") + "/tree/" + path;
    made.onclick = event => {
      event.preventDefault();
      app.commands.execute("docmanager:open", page ? {path, factory: "Markdown Preview"} : {path});
    };
  };

  // Where a reference has words of its own, only the source says to which label they lead.
  const linkWords = (app, panel) => {
    for (const cell of panel.content?.widgets ?? []) {
      const dead = [...cell.node.querySelectorAll(`.jp-RenderedMarkdown ${DEAD}, .myst ${DEAD}`)];
      if (!dead.length) continue;
      for (const [, words, label] of cell.model.sharedModel.getSource().matchAll(WORDED))
        for (const missing of dead)
          if (missing.textContent === words) link(app, missing, label, words);
    }
  };

  const resolve = app => {
    for (const missing of document.querySelectorAll(MISSING)) link(app, missing);
    for (const made of document.querySelectorAll("a[data-label]"))
      if (!made.previousElementSibling?.matches(`${MISSING}, ${DEAD}`)) made.remove();
    // A box that goes on over cells says so; its title need not.
    for (const title of document.querySelectorAll(".myst-exercise-title")) {
      const texts = document.createTreeWalker(title, NodeFilter.SHOW_TEXT);
      const first = texts.nextNode();
      if (first?.data.startsWith("Start of ")) first.data = first.data.slice(9);
    }
    // What ends an exercise or a solution in the text is an empty box here.
    for (const box of document.querySelectorAll(".myst-exercise"))
      box.style.display = ["", "End of Exercise"].includes(box.textContent.trim()) ? "none" : "";
  };

  // The box of a solution folds what follows it, text and cells, up to the solution's end. The text
  // says where that is, because a cell that is hidden is not rendered.
  const folded = new WeakMap();
  const foldSolutions = panel => {
    let inside = false, shut = false;
    for (const cell of panel.content?.widgets ?? []) {
      const text = cell.model.type === "markdown" ? cell.model.sharedModel.getSource() : "";
      const start = text.lastIndexOf("{solution-start}"), end = text.lastIndexOf("{solution-end}");
      if (start >= 0 || end >= 0) {
        let above = shut;
        const boxes = cell.node.querySelectorAll(".myst-exercise");
        for (const block of boxes[0]?.parentElement.children ?? [])
          if (block.matches(".myst-exercise")) above = false;
          else block.style.display = above ? "none" : "";
        inside = start > end;
        shut = inside && ![...boxes].at(-1)?.open;
      } else if (inside && folded.get(cell) !== shut) {
        folded.set(cell, shut);
        cell.setHidden(shut);
        if (cell.model.type !== "code") continue;
        cell.syncCollapse = false; // or it would write this into the notebook
        cell.inputHidden = cell.outputHidden = shut;
      }
    }
  };

  // JupyterLab gives away the first line of a hidden output, which may answer a "Predict", and shows
  // no trace of a hidden figure where the code is hidden as well.
  const showFolded = () => {
    for (const text of document.querySelectorAll(".jp-OutputPlaceholder .jp-PlaceholderText")) {
      if (["", "Output"].includes(text.textContent)) continue;
      if (text.textContent.startsWith("<Figure"))
        text.closest(".jp-Cell-outputWrapper").style.setProperty("display", "flex", "important");
      text.textContent = "Output";
    }
  };

  // The number of a lesson as the book prints it before those of its exercises and figures: "11.".
  const lessonOf = panel => {
    const number = (panel.context?.path ?? "").match(/(\d\d)_[^/]*$/)?.[1];
    return number ? `${+number}.` : "";
  };

  // A style sheet writes it before the title, because a cell is rendered anew when it is edited.
  const numberTitle = panel => {
    const title = panel.node.querySelector(".jp-MarkdownCell h1");
    const number = lessonOf(panel);
    if (title && number) title.dataset.number = number;
  };

  const numberExercises = panel => {
    const lesson = lessonOf(panel);
    if (!lesson) return;
    for (const title of panel.node.querySelectorAll(".myst-exercise-title")) {
      const texts = document.createTreeWalker(title, NodeFilter.SHOW_TEXT);
      while (texts.nextNode()) {
        const {data} = texts.currentNode, found = data.match(/^(.*Exercise )?(\d+)(?!\.)\b/);
        if (found) texts.currentNode.data = data.replace(/\d+/, lesson + found[2]);
        if (/\d/.test(data)) break;
      }
    }
  };

  // An equation has the book's number; JupyterLab also numbers those without a label.
  const EQUATION = "a[title='Link to this Equation'], a[href^='#eq-']";
  const numberEquations = panel => {
    for (const shown of panel.node.querySelectorAll(EQUATION)) {
      const number = KNOWN.references[shown.hash.slice(1)]?.text ?? "";
      if (shown.textContent === number) continue;
      const [first, ...others] = shown.childNodes; // which React owns
      first.data = number;
      for (const other of others) other.data = "";
    }
  };

  // The words for a figure are in the cell's metadata: a caption, and what one sees. A moving figure
  // describes itself.
  const describe = panel => {
    let number = 0;
    for (const cell of panel.content?.widgets ?? []) {
      const {sharedModel} = cell.model, alt = sharedModel.getMetadata("mystnb")?.image?.alt;
      if (!alt) continue;
      const solution = sharedModel.getMetadata("tags")?.includes("solution");
      const [, caption, rest = alt] = !solution && alt.match(/^(.+?\.)(?:\s+([A-Z].+))?$/s) || [];
      if (!solution) number++;
      for (const figure of cell.node.querySelectorAll(`.jp-RenderedImage img, ${MOVING}`)) {
        if (figure.matches("img") && figure.alt !== rest) figure.alt = rest;
        if (!caption || figure.nextElementSibling?.matches("figcaption")) continue;
        const made = document.createElement("figcaption");
        made.textContent = `Fig. ${lessonOf(panel)}${number} ${caption}`;
        figure.after(made);
      }
    }
  };

  // A kernel that connects writes its language into the notebook. A reader has changed nothing then.
  const watched = new WeakSet();
  const keepClean = panel => {
    const context = panel?.context, model = context?.model;
    if (!model?.sharedModel?.cells || watched.has(panel)) return;
    watched.add(panel);
    const cells = () => JSON.stringify(model.sharedModel.cells.map(cell => cell.toJSON()));
    context.ready.then(() => {
      let saved = cells();
      const check = () => {
        if (model.dirty && cells() === saved) model.dirty = false;
      };
      context.saveState.connect((_, state) => {
        if (state === "completed") saved = cells();
      });
      model.stateChanged.connect((_, change) => {
        if (change.name === "dirty" && change.newValue) queueMicrotask(check);
      });
      check();
    });
  };

  const plugin = {
    id: "dynconv-lessons:plugin",
    autoStart: true,
    activate: app => {
      let waiting = false;
      const update = () => {
        if (waiting) return;
        waiting = true;
        requestAnimationFrame(() => {
          waiting = false;
          resolve(app);
          showFolded();
          for (const panel of app.shell.widgets("main")) {
            keepClean(panel);
            foldSolutions(panel);
            describe(panel);
            numberTitle(panel);
            numberExercises(panel);
            numberEquations(panel);
            linkWords(app, panel);
          }
        });
      };
      const style = document.createElement("style");
      style.textContent = STYLE;
      document.head.append(style);
      const everything = {childList: true, subtree: true, characterData: true};
      new MutationObserver(update).observe(document.body, everything);
      document.addEventListener("toggle", update, true);
    },
  };

  (window._JUPYTERLAB ??= {})["dynconv-lessons"] = {
    init: () => {},
    get: async () => () => ({__esModule: true, default: plugin}),
  };
})();
