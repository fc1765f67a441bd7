"use strict";
// Sorts the list of tables by what its heads say.
for (const button of document.querySelectorAll("th button")) {
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
    const rows = [...body.rows].sort((a, b) => direction === "ascending" ? order(a, b) : order(b, a));
    body.append(...rows);
  });
}
