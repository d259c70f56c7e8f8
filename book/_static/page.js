// What the theme leaves to be desired for screen readers.
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
  // An empty corner of a table heads nothing.
  for (const header of document.querySelectorAll("th"))
    if (!header.textContent.trim()) {
      const cell = document.createElement("td");
      cell.className = header.className;
      header.replaceWith(cell);
    }
});
