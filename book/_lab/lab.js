// What JupyterLab needs to know of this book; lab.py puts KNOWN, titles and papers, before it.
(() => {
  const MISSING = '[title="Cross Reference Not Found"], [title="Citation Not Found"]';

  // The label stays in the page, hidden, because React owns it; a link follows it.
  const link = (app, missing) => {
    const label = missing.textContent.trim();
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
      made.textContent = reference.text;
      if (reference.notebook) open(app, made, reference.notebook);
    } else return;
    missing.hidden = true;
    missing.style.display = "none";
    missing.after(made);
  };

  const open = (app, made, notebook) => {
    const here = app.shell.currentWidget?.context?.path ?? "";
    const path = here.slice(0, here.lastIndexOf("/") + 1) + notebook;
    made.href = location.href.replace(/\/tree\/.*|[?#].*/, "") + "/tree/" + path;
    made.onclick = event => {
      event.preventDefault();
      app.commands.execute("docmanager:open", {path});
    };
  };

  const resolve = app => {
    for (const missing of document.querySelectorAll(MISSING)) link(app, missing);
    for (const made of document.querySelectorAll("a[data-label]"))
      if (!made.previousElementSibling?.matches(MISSING)) made.remove();
    // What ends an exercise or a solution in the text is an empty box here.
    for (const box of document.querySelectorAll(".myst-exercise"))
      box.style.display = ["", "End of Exercise"].includes(box.textContent.trim()) ? "none" : "";
  };

  // JupyterLab shows no trace of a hidden figure where the code is hidden as well.
  const showFolded = () => {
    for (const text of document.querySelectorAll(".jp-OutputPlaceholder .jp-PlaceholderText")) {
      if (!text.textContent.startsWith("<Figure")) continue;
      text.closest(".jp-Cell-outputWrapper").style.setProperty("display", "flex", "important");
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
      new MutationObserver(() => {
        if (waiting) return;
        waiting = true;
        requestAnimationFrame(() => {
          waiting = false;
          resolve(app);
          showFolded();
          for (const panel of app.shell.widgets("main")) keepClean(panel);
        });
      }).observe(document.body, {childList: true, subtree: true, characterData: true});
    },
  };

  (window._JUPYTERLAB ??= {})["dynconv-lessons"] = {
    init: () => {},
    get: async () => () => ({__esModule: true, default: plugin}),
  };
})();
