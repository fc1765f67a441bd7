"use strict";
// The tables of a pattern stand behind its row, which opens them.
const inside = (row) => row.dataset.opens
  ? row.parentElement.querySelectorAll(`tr[data-of="${row.dataset.opens}"]`) : [];
for (const button of document.querySelectorAll("tbody button")) {
  const open = (expanded) => {
    button.setAttribute("aria-expanded", expanded);
    for (const row of inside(button.closest("tr"))) row.hidden = !expanded;
  };
  open(false);
  button.addEventListener("click", () => open(button.getAttribute("aria-expanded") !== "true"));
}

// Sorts the list of tables by what its heads say.
for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0];
    const usual = head.classList.contains("n") ? "descending" : "ascending";
    const reverse = usual === "ascending" ? "descending" : "ascending";
    const direction = head.getAttribute("aria-sort") === usual ? reverse : usual;
    for (const cell of head.parentElement.cells) cell.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    const value = (row) => row.cells[head.cellIndex].dataset.v;
    const order = head.classList.contains("n")
      ? (a, b) => Number(value(a)) - Number(value(b))
      : (a, b) => value(a).localeCompare(value(b), "en");
    const sorted = (rows) => [...rows].sort((a, b) => direction === "ascending" ? order(a, b) : order(b, a));
    const outer = sorted(body.rows).filter((row) => !row.dataset.of);
    body.append(...outer.flatMap((row) => [row, ...sorted(inside(row))]));
  });
}
