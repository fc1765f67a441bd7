"use strict";
// The list of columns: a tree of which only the rows in sight are in the document.
(() => {
  const ROW = 36, SPARE = 8, SMALL = 200;
  const data = JSON.parse(document.getElementById("data").textContent);
  const columns = data.rows.map((row) => Object.fromEntries(row.map((value, i) =>
    [data.keys[i], value === null ? undefined : i < data.shared ? data.texts[value] : value])));
  const [tree, rows, find, kind, sort, count, detail] =
    ["tree", "rows", "find", "kind", "sort", "count", "detail"].map((id) => document.getElementById(id));
  const inside = columns.map(() => []);
  const roots = [];
  columns.forEach((column, i) => {
    column.path ??= (column.up < 0 ? "" : columns[column.up].path + ".") + column.name;
    column.level = column.up < 0 ? 1 : columns[column.up].level + 1;
    column.text = (column.path + "\n" + (column.from || "")).toLowerCase();
    (column.up < 0 ? roots : inside[column.up]).push(i);
  });
  const open = new Set(columns.length <= SMALL ? columns.keys() : []);
  let shown = [], hits = null, at = 0, told = -1, printing = false;
  const amount = (c) => c.values === undefined ? -1 : Number(c.values.replace(/[^0-9]/g, ""));
  const orders = {
    name: (a, b) => a.name.localeCompare(b.name, "en"),
    most: (a, b) => amount(b) - amount(a),
    least: (a, b) => amount(a) - amount(b),
    last: (a, b) => (b.last || "").localeCompare(a.last || "", "en"),
  };

  const tests = {
    all: () => true,
    drifted: (c) => c.drifted,
    sparse: (c) => c.density !== undefined && c.density > 0 && c.density < 0.1,
    empty: (c) => c.values === "0",
  };

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // What is searched for, and all above it; null: everything.
  function search() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const show = document.querySelector("input[name=show]:checked").value;
    hits = null;
    if (words.length || kind.value || show !== "all") {
      hits = new Map();
      columns.forEach((c, i) => {
        if (!words.every((word) => c.text.includes(word)) || (kind.value && c.kind !== kind.value) || !tests[show](c)) return;
        hits.set(i, true);
        for (let up = c.up; up >= 0 && !hits.has(up); up = columns[up].up) hits.set(up, false);
      });
    }
    at = 0;
    tree.scrollTop = 0;
    list();
  }

  function list() {
    shown = [];
    const order = orders[sort.value];
    const ordered = (some) => order ? [...some].sort((a, b) => order(columns[a], columns[b]) || a - b) : some;
    const walk = (i) => {
      if (hits && !hits.has(i)) return;
      shown.push(i);
      if (hits ? inside[i].some((j) => hits.has(j)) : open.has(i)) ordered(inside[i]).forEach(walk);
    };
    ordered(roots).forEach(walk);
    const found = hits ? [...hits.values()].filter(Boolean).length : columns.length;
    count.textContent = hits ? `${found.toLocaleString("en")} of ${columns.length.toLocaleString("en")} columns` : `${found.toLocaleString("en")} columns, with those inside others`;
    tree.setAttribute("aria-rowcount", shown.length);
    rows.style.height = `${shown.length * ROW}px`;
    at = Math.min(at, Math.max(shown.length - 1, 0));
    draw();
  }

  function draw() {
    const first = printing ? 0 : Math.max(Math.floor(tree.scrollTop / ROW) - SPARE, 0);
    const last = printing ? shown.length : Math.min(Math.ceil((tree.scrollTop + tree.clientHeight) / ROW) + SPARE, shown.length);
    rows.replaceChildren(...shown.slice(first, last).map((i, k) => row(i, first + k)));
    if (shown.length) tree.setAttribute("aria-activedescendant", `c${shown[at]}`);
    else tree.removeAttribute("aria-activedescendant");
  }

  function row(i, place) {
    const c = columns[i], made = element("div", "row");
    made.id = `c${i}`;
    made.style.top = `${place * ROW}px`;
    made.dataset.place = place;
    made.setAttribute("role", "row");
    made.setAttribute("aria-level", c.level);
    made.setAttribute("aria-rowindex", place + 1);
    made.setAttribute("aria-selected", place === at);
    if (inside[i].length) made.setAttribute("aria-expanded", isOpen(i));
    made.classList.toggle("at", place === at);
    made.classList.toggle("dim", Boolean(hits) && !hits.get(i));
    const name = element("span", "name");
    name.style.paddingLeft = `${(c.level - 1) * 16}px`;
    name.append(element("i", "", inside[i].length ? (isOpen(i) ? "▾" : "▸") : ""), c.name);
    if (c.key) name.append(element("em", "", `← ${c.key}`));
    const density = element("span", "num"), bar = element("b"), part = element("u");
    part.style.width = `${(c.density || 0) * 100}%`;
    bar.append(part);
    density.append(bar, c.percent || "?");
    const range = c.min === undefined ? "" : c.min === c.max ? c.min : `${c.min} … ${c.max}`;
    const trend = element("span", "trend");
    if (c.trend) trend.append(spark(c.trend, 72, 18));
    const cells = [name, element("span", `type k-${c.kind}`, c.type), element("span", "values", c.values || "?"), density, element("span", "range", range), trend];
    cells.forEach((cell) => cell.setAttribute("role", "gridcell"));
    name.title = c.path;
    made.append(...cells);
    return made;
  }

  function spark(values, width, height) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", "Density of the last batches: " + values.map((v) => v === null ? "unknown" : `${Math.round(v * 100)} %`).join(", "));
    const step = width / values.length;
    values.forEach((value, i) => {
      if (value === null) return;
      const bar = document.createElementNS(svg.namespaceURI, "rect");
      const tall = value ? Math.max(value * height, 1.5) : 1;
      bar.setAttribute("x", i * step);
      bar.setAttribute("y", height - tall);
      bar.setAttribute("width", Math.max(step - 1.5, 1));
      bar.setAttribute("height", tall);
      if (!value) bar.setAttribute("opacity", ".35");
      svg.append(bar);
    });
    return svg;
  }

  function tell(i) {
    const c = columns[i], facts = element("dl");
    const fact = (name, value) => {
      if (value === undefined || value === "") return;
      const told = element("dd");
      told.append(value);
      facts.append(element("dt", "", name), told);
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
    if (c.trend) fact("last batches", spark(c.trend, 180, 36));
    const link = element("a", "", "link to this column");
    link.href = `#c:${encodeURIComponent(c.path)}`;
    fact("", link);
    detail.replaceChildren(element("h3", "", c.path), facts);
    detail.hidden = false;
    told = i;
    location.replace(link.href);
  }

  // The column that the address names, after #c:
  function visit() {
    let path;
    try { path = decodeURIComponent(location.hash.replace(/^#c:/, "")); } catch { return; }
    const i = location.hash.startsWith("#c:") ? columns.findIndex((c) => c.path === path) : -1;
    if (i < 0 || i === told) return;
    find.value = kind.value = "";
    document.querySelector("input[name=show][value=all]").checked = true;
    for (let up = columns[i].up; up >= 0; up = columns[up].up) open.add(up);
    search();
    tell(i);
    go(shown.indexOf(i));
    tree.scrollIntoView({ block: "center" });
  }

  const isOpen = (i) => hits ? inside[i].some((j) => hits.has(j)) : open.has(i);

  function go(place) {
    at = Math.max(0, Math.min(place, shown.length - 1));
    if (at * ROW < tree.scrollTop) tree.scrollTop = at * ROW;
    else if ((at + 1) * ROW > tree.scrollTop + tree.clientHeight) tree.scrollTop = (at + 1) * ROW - tree.clientHeight;
    draw();
  }

  function toggle(i, wanted = !open.has(i)) {
    if (!inside[i].length || hits) return;
    open[wanted ? "add" : "delete"](i);
    list();
  }

  const keys = {
    ArrowDown: () => go(at + 1),
    ArrowUp: () => go(at - 1),
    Home: () => go(0),
    End: () => go(shown.length - 1),
    PageDown: () => go(at + Math.floor(tree.clientHeight / ROW)),
    PageUp: () => go(at - Math.floor(tree.clientHeight / ROW)),
    ArrowRight: () => isOpen(shown[at]) && inside[shown[at]].length ? go(at + 1) : toggle(shown[at], true),
    ArrowLeft: () => isOpen(shown[at]) && inside[shown[at]].length && !hits ? toggle(shown[at], false) : go(Math.max(shown.indexOf(columns[shown[at]].up), 0)),
    Enter: () => tell(shown[at]),
    " ": () => tell(shown[at]),
  };
  tree.addEventListener("keydown", (event) => {
    if (!keys[event.key] || !shown.length || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  rows.addEventListener("click", (event) => {
    const made = event.target.closest(".row");
    if (!made) return;
    at = Number(made.dataset.place);
    tell(shown[at]);
    toggle(shown[at]);
    draw();
  });
  tree.addEventListener("scroll", draw, { passive: true });
  window.addEventListener("resize", draw);
  find.addEventListener("input", search);
  kind.addEventListener("change", search);
  sort.addEventListener("change", search);
  window.addEventListener("hashchange", visit);
  window.addEventListener("beforeprint", () => { printing = true; draw(); });
  window.addEventListener("afterprint", () => { printing = false; draw(); });
  document.querySelectorAll("input[name=show]").forEach((one) => one.addEventListener("change", search));
  document.getElementById("open").addEventListener("click", () => { columns.forEach((_, i) => open.add(i)); list(); });
  document.getElementById("close").addEventListener("click", () => { open.clear(); list(); });
  const kinds = { whole: "whole numbers", fraction: "fractions", decimal: "decimals", text: "text", time: "dates and times", boolean: "booleans", list: "lists", record: "records", other: "others" };
  for (const [value, name] of Object.entries(kinds)) {
    if (columns.some((c) => c.kind === value)) kind.append(new Option(name, value));
  }
  list();
  visit();
})();
