"use strict";

/* Tables: a click on a heading sorts by it, a second click reverses the order. */
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach(other => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = row => {
      const cell = row.cells[column];
      if ("value" in cell.dataset) return Number(cell.dataset.value);
      return cell.textContent === "-" ? null : cell.textContent;
    };
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === null || y === null) return (x === null) - (y === null);  // missing figures come last
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      return up ? order : -order;
    });
    table.tBodies[0].append(...rows);
  }));
}

/* Forms: scripts do the work, the browser sends nothing by itself. */
for (const form of document.forms) form.addEventListener("submit", event => event.preventDefault());

/* What the viewers share: the data embedded in the page, and whether it holds any record. */
const readData = id => JSON.parse(document.getElementById(id).textContent);
const hasRecords = models => Object.values(models).some(records => records.length);
