"use strict";
// Sorts the list of tables by what its heads say.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0];
    const first = head.classList.contains("n") ? "descending" : "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    const way = head.getAttribute("aria-sort") === first ? other : first;
    for (const each of head.parentElement.cells) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", way);
    const value = (row) => row.cells[head.cellIndex].dataset.v;
    const order = head.classList.contains("n")
      ? (a, b) => Number(value(a)) - Number(value(b))
      : (a, b) => value(a).localeCompare(value(b), "en");
    const rows = [...body.rows].sort((a, b) => way === "ascending" ? order(a, b) : order(b, a));
    body.append(...rows);
  });
}
