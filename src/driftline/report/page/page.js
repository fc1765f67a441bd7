"use strict";
// The list of columns: a tree of which only the rows in sight are in the document.
(() => {
  const ROW = 36, SPARE = 8, SMALL = 200;
  const data = JSON.parse(document.getElementById("data").textContent);
  const columns = data.rows.map((row) => Object.fromEntries(row.map((value, i) =>
    [data.keys[i], value === null ? undefined : i < data.shared ? data.texts[value] : value])));
  const [tree, rowArea, searchBox, kindChoice, sortChoice, summary, detail] =
    ["tree", "rows", "find", "kind", "sort", "count", "detail"].map((id) => document.getElementById(id));
  const children = columns.map(() => []);
  const roots = [];
  columns.forEach((column, i) => {
    column.path ??= (column.up < 0 ? "" : columns[column.up].path + ".") + column.name;
    column.level = column.up < 0 ? 1 : columns[column.up].level + 1;
    column.text = (column.path + "\n" + (column.from || "")).toLowerCase();
    (column.up < 0 ? roots : children[column.up]).push(i);
  });
  const open = new Set(columns.length <= SMALL ? columns.keys() : []);
  // Columns in sight, in order; those that a search finds, and (false) what is above them; the place in `visible`
  // that the keys move; the column that is described.
  let visible = [], hits = null, cursor = 0, described = -1, printing = false;
  const valueCount = (c) => c.values === undefined ? -1 : Number(c.values.replace(/[^0-9]/g, ""));
  const orders = {
    name: (a, b) => a.name.localeCompare(b.name, "en"),
    most: (a, b) => valueCount(b) - valueCount(a),
    least: (a, b) => valueCount(a) - valueCount(b),
    last: (a, b) => (b.last || "").localeCompare(a.last || "", "en"),
  };

  const filters = {
    all: () => true,
    drifted: (c) => c.drifted,
    sparse: (c) => c.density !== undefined && c.density > 0 && c.density < 0.1,
    empty: (c) => c.values === "0",
  };

  function element(name, className, text) {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  // What is searched for, and all above it; null: everything.
  function search() {
    const words = searchBox.value.toLowerCase().split(/\s+/).filter(Boolean);
    const show = document.querySelector("input[name=show]:checked").value;
    hits = null;
    if (words.length || kindChoice.value || show !== "all") {
      hits = new Map();
      columns.forEach((c, i) => {
        if (!words.every((word) => c.text.includes(word)) || (kindChoice.value && c.kind !== kindChoice.value) || !filters[show](c)) return;
        hits.set(i, true);
        for (let up = c.up; up >= 0 && !hits.has(up); up = columns[up].up) hits.set(up, false);
      });
    }
    cursor = 0;
    tree.scrollTop = 0;
    showRows();
  }

  // Works out which columns are in sight, in which order.
  function showRows() {
    visible = [];
    const order = orders[sortChoice.value];
    const ordered = (some) => order ? [...some].sort((a, b) => order(columns[a], columns[b]) || a - b) : some;
    const walk = (i) => {
      if (hits && !hits.has(i)) return;
      visible.push(i);
      if (hits ? children[i].some((j) => hits.has(j)) : open.has(i)) ordered(children[i]).forEach(walk);
    };
    ordered(roots).forEach(walk);
    const matching = hits ? [...hits.values()].filter(Boolean).length : columns.length;
    summary.textContent = hits ? `${matching.toLocaleString("en")} of ${columns.length.toLocaleString("en")} columns` : `${matching.toLocaleString("en")} columns, nested included`;
    tree.setAttribute("aria-rowcount", visible.length);
    rowArea.style.height = `${visible.length * ROW}px`;
    cursor = Math.min(cursor, Math.max(visible.length - 1, 0));
    draw();
  }

  // Puts the rows into the document that the scrolled part has room for, or all to print them.
  function draw() {
    const first = printing ? 0 : Math.max(Math.floor(tree.scrollTop / ROW) - SPARE, 0);
    const last = printing ? visible.length : Math.min(Math.ceil((tree.scrollTop + tree.clientHeight) / ROW) + SPARE, visible.length);
    rowArea.replaceChildren(...visible.slice(first, last).map((i, k) => rowOf(i, first + k)));
    if (visible.length) tree.setAttribute("aria-activedescendant", `c${visible[cursor]}`);
    else tree.removeAttribute("aria-activedescendant");
  }

  // The row of a column, at its place among those in sight.
  function rowOf(i, place) {
    const c = columns[i], line = element("div", "row");
    line.id = `c${i}`;
    line.style.top = `${place * ROW}px`;
    line.dataset.place = place;
    line.setAttribute("role", "row");
    line.setAttribute("aria-level", c.level);
    line.setAttribute("aria-rowindex", place + 1);
    line.setAttribute("aria-selected", place === cursor);
    if (children[i].length) line.setAttribute("aria-expanded", isOpen(i));
    line.classList.toggle("at", place === cursor);
    line.classList.toggle("dim", Boolean(hits) && !hits.get(i));
    const name = element("span", "name");
    name.style.paddingLeft = `${(c.level - 1) * 16}px`;
    name.append(element("i", "", children[i].length ? (isOpen(i) ? "▾" : "▸") : ""), c.name);
    if (c.key) name.append(element("em", "", `← ${c.key}`));
    const density = element("span", "num"), bar = element("b"), filled = element("u");
    filled.style.width = `${(c.density || 0) * 100}%`;
    bar.append(filled);
    density.append(bar, c.percent || "?");
    const range = c.min === undefined ? "" : c.min === c.max ? c.min : `${c.min} … ${c.max}`;
    const trend = element("span", "trend");
    if (c.trend) trend.append(sparkline(c, 72, 18));
    const cells = [name, element("span", `type k-${c.kind}`, c.type), element("span", "values", c.values || "?"), density, element("span", "range", range), trend];
    cells.forEach((cell) => cell.setAttribute("role", "gridcell"));
    name.title = c.path;
    line.append(...cells);
    return line;
  }

  // Bars of shares from 0 to 1, in the colour of the column's type; null where one is not known.
  function sparkline({ trend: values, kind }, width, height) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    svg.setAttribute("role", "img");
    svg.setAttribute("class", `k-${kind}`);
    svg.setAttribute("aria-label", "Density of the last batches: " + values.map((v) => v === null ? "unknown" : `${Math.round(v * 100)} %`).join(", "));
    const step = width / values.length;
    values.forEach((value, i) => {
      if (value === null) return;
      const bar = document.createElementNS(svg.namespaceURI, "rect");
      const barHeight = value ? Math.max(value * height, 1.5) : 1;
      bar.setAttribute("x", i * step);
      bar.setAttribute("y", height - barHeight);
      bar.setAttribute("width", Math.max(step - 1.5, 1));
      bar.setAttribute("height", barHeight);
      if (!value) bar.setAttribute("opacity", ".35");
      svg.append(bar);
    });
    return svg;
  }

  // Shows all that is known of a column beside the list, and names it in the address.
  function describe(i) {
    const c = columns[i], facts = element("dl");
    const fact = (name, value) => {
      if (value === undefined || value === "") return;
      const definition = element("dd");
      definition.append(value);
      facts.append(element("dt", "", name), definition);
    };
    fact("type", c.type);
    fact("holds the field", c.from);
    fact("values", c.values && `${c.values}${c.of ? ` of ${c.of}` : ""}`);
    fact("density", c.percent);
    fact("distinct, about", c.distinct);
    fact("min", c.min);
    fact("max", c.max);
    fact("a value", c.sample);
    fact("first seen", c.first);
    fact("last seen", c.last);
    if (c.trend) fact("last batches", sparkline(c, 180, 36));
    const link = element("a", "", "link to this column");
    link.href = `#c:${encodeURIComponent(c.path)}`;
    fact("", link);
    detail.replaceChildren(element("h3", "", c.path), facts);
    detail.hidden = false;
    described = i;
    location.replace(link.href);
  }

  // Goes to the column that the address names, after #c:
  function openAddress() {
    let path;
    try { path = decodeURIComponent(location.hash.replace(/^#c:/, "")); } catch { return; }
    const i = location.hash.startsWith("#c:") ? columns.findIndex((c) => c.path === path) : -1;
    if (i < 0 || i === described) return;
    searchBox.value = kindChoice.value = "";
    document.querySelector("input[name=show][value=all]").checked = true;
    for (let up = columns[i].up; up >= 0; up = columns[up].up) open.add(up);
    search();
    describe(i);
    moveTo(visible.indexOf(i));
    tree.scrollIntoView({ block: "center" });
  }

  // Whether the columns inside are in sight; a search decides it by what it finds.
  const isOpen = (i) => hits ? children[i].some((j) => hits.has(j)) : open.has(i);

  // Moves the cursor, and scrolls as far as that takes.
  function moveTo(place) {
    cursor = Math.max(0, Math.min(place, visible.length - 1));
    if (cursor * ROW < tree.scrollTop) tree.scrollTop = cursor * ROW;
    else if ((cursor + 1) * ROW > tree.scrollTop + tree.clientHeight) tree.scrollTop = (cursor + 1) * ROW - tree.clientHeight;
    draw();
  }

  // Opens or closes a column that has others inside.
  function toggle(i, opens = !open.has(i)) {
    if (!children[i].length || hits) return;
    open[opens ? "add" : "delete"](i);
    showRows();
  }

  const keys = {
    ArrowDown: () => moveTo(cursor + 1),
    ArrowUp: () => moveTo(cursor - 1),
    Home: () => moveTo(0),
    End: () => moveTo(visible.length - 1),
    PageDown: () => moveTo(cursor + Math.floor(tree.clientHeight / ROW)),
    PageUp: () => moveTo(cursor - Math.floor(tree.clientHeight / ROW)),
    ArrowRight: () => isOpen(visible[cursor]) && children[visible[cursor]].length ? moveTo(cursor + 1) : toggle(visible[cursor], true),
    ArrowLeft: () => isOpen(visible[cursor]) && children[visible[cursor]].length && !hits ? toggle(visible[cursor], false) : moveTo(Math.max(visible.indexOf(columns[visible[cursor]].up), 0)),
    Enter: () => describe(visible[cursor]),
    " ": () => describe(visible[cursor]),
  };
  tree.addEventListener("keydown", (event) => {
    if (!keys[event.key] || !visible.length || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  rowArea.addEventListener("click", (event) => {
    const line = event.target.closest(".row");
    if (!line) return;
    cursor = Number(line.dataset.place);
    describe(visible[cursor]);
    toggle(visible[cursor]);
    draw();
  });
  tree.addEventListener("scroll", draw, { passive: true });
  window.addEventListener("resize", draw);
  searchBox.addEventListener("input", search);
  kindChoice.addEventListener("change", search);
  sortChoice.addEventListener("change", search);
  window.addEventListener("hashchange", openAddress);
  window.addEventListener("beforeprint", () => {
    printing = true;
    draw();
    for (const folded of document.querySelectorAll("details.older")) folded.open = true;
  });
  window.addEventListener("afterprint", () => { printing = false; draw(); });
  document.querySelectorAll("input[name=show]").forEach((choice) => choice.addEventListener("change", search));
  document.getElementById("open").addEventListener("click", () => { columns.forEach((_, i) => open.add(i)); showRows(); });
  document.getElementById("close").addEventListener("click", () => { open.clear(); showRows(); });
  const kinds = { whole: "whole numbers", fraction: "fractions", decimal: "decimals", text: "text", time: "dates and times", boolean: "booleans", list: "lists", record: "records", other: "others" };
  for (const [value, name] of Object.entries(kinds)) {
    if (columns.some((c) => c.kind === value)) kindChoice.append(new Option(name, value));
  }
  showRows();
  openAddress();
})();
