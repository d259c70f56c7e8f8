// What the theme leaves to be desired for screen readers and phones.
addEventListener("load", () => {
  // A name must contain the text that is seen; without a label the text, or else the title, is the name.
  for (const element of document.querySelectorAll("summary[aria-label], button[aria-label]")) {
    element.title ||= element.getAttribute("aria-label");
    element.removeAttribute("aria-label");
  }
  // The site's title stands outside of all landmarks.
  const title = document.querySelector(".navbar-brand.logo")?.parentElement;
  title?.setAttribute("role", "navigation");
  title?.setAttribute("aria-label", "Title");
  // On a phone the contents are drawers: the one of the page shuts when a section is chosen, and the
  // one of the book begins at the page that is open.
  for (const drawer of document.querySelectorAll("dialog[id$=sidebar-modal]"))
    drawer.addEventListener("click", event => {
      if (event.target.closest("a[href^='#']")) drawer.close();
    });
  document.querySelector(".primary-toggle")?.addEventListener("click", () => {
    document.querySelector("dialog[open] a.current")?.scrollIntoView({block: "center"});
  });
  // An empty corner of a table heads nothing.
  for (const header of document.querySelectorAll("th"))
    if (!header.textContent.trim()) {
      const cell = document.createElement("td");
      cell.className = header.className;
      header.replaceWith(cell);
    }
  // A bracket or a comma stays on the line of its formula.
  for (const formula of document.querySelectorAll("span.math")) {
    const {previousSibling: before, nextSibling: after} = formula;
    const opening = before instanceof Text && before.data.match(/[([“]+$/)?.[0];
    const closing = after instanceof Text && after.data.match(/^[)\]”.,;:?!]+/)?.[0];
    if (opening) {
      before.data = before.data.slice(0, -opening.length);
      formula.prepend(opening);
    }
    if (closing) {
      after.data = after.data.slice(closing.length);
      formula.append(closing);
    }
  }
  // An option in the text does not break after its hyphens; in a signature a comma or the closing
  // parenthesis stays with its parameter.
  for (const word of document.querySelectorAll("code.literal .pre"))
    if (word.textContent.length <= 24 && !word.closest("table")) word.classList.add("short");
  for (const parameter of document.querySelectorAll("dt.sig .sig-param")) {
    const after = parameter.nextSibling;
    if (after instanceof Text && after.data.startsWith(",")) {
      after.data = after.data.slice(1);
      parameter.append(",");
    } else if (after?.matches?.(".sig-paren")) parameter.append(after);
  }
  // A formula that is a little too wide becomes smaller; one that is wider scrolls sideways, and can
  // be reached by Tab.
  const SMALLEST = 0.68, article = document.querySelector("article");
  let width;
  const fit = () => {
    if (width === article.clientWidth) return;
    width = article.clientWidth;
    for (const picture of document.querySelectorAll("div.math > mjx-container > svg")) {
      picture.style.width = picture.style.height = "";
      const {clientWidth, scrollWidth} = picture.parentElement;
      if (scrollWidth > clientWidth && clientWidth >= SMALLEST * scrollWidth)
        Object.assign(picture.style, {width: "100%", height: "auto"});
    }
    for (const formula of document.querySelectorAll("mjx-container"))
      if (formula.scrollWidth > formula.clientWidth) formula.tabIndex = 0;
  };
  window.MathJax?.startup?.promise?.then(() => new ResizeObserver(fit).observe(article));
  // Numbers stay on a line; on a phone, prose in a table gets a width to be read in.
  for (const cell of document.querySelectorAll(".bd-content td")) {
    const text = cell.textContent.trim();
    if (/^([-−+±×\d.,:%\s]|to)+( [a-zA-Z]{1,2})?$/.test(text)) cell.classList.add("number");
    else if (text.length > 40) cell.classList.add("prose");
  }
  // On a phone a figure wider than style.PHONE shrinks; a tap on it, or on its button, enlarges it.
  for (const figure of document.querySelectorAll("div.cell_output a:has(> img)")) {
    if (parseFloat(figure.firstElementChild.style.width) <= 530) continue;
    const button = document.createElement("button"), output = figure.closest("div.cell_output");
    const toggle = event => {
      if (!button.checkVisibility()) return; // a click opens the picture
      event.preventDefault();
      const large = output.classList.toggle("large");
      button.textContent = large ? "Fit to the page" : "Enlarge";
    };
    button.className = "enlarge";
    button.textContent = "Enlarge";
    figure.after(button);
    figure.onclick = button.onclick = toggle;
  }
  // On a phone the drawing of a moving figure keeps labels of 9 pixels and scrolls; its controls stay.
  for (const {shadowRoot} of document.querySelectorAll(".text_html > *")) {
    const drawing = shadowRoot?.querySelector("svg"), frame = document.createElement("div");
    if (!drawing) continue;
    drawing.replaceWith(frame);
    frame.append(drawing);
    frame.className = "sideways";
    frame.style.overflowX = "auto";
    shadowRoot.append(document.querySelector("link[href*='page.css']").cloneNode());
    drawing.style.minWidth = "var(--least)";
    if (frame.scrollWidth > frame.clientWidth) frame.tabIndex = 0;
  }
});
