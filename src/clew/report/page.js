// Tables are sorted by the column whose head is clicked: the largest first, then the smallest.
const key = (row, column) => {
  const text = row.cells[column].firstChild?.textContent.replaceAll(",", "").replace("−", "-") ?? "";
  const number = parseFloat(text);
  return Number.isNaN(number) ? text : number;
};
const compare = (a, b) => {
  if (typeof a === typeof b) return typeof a === "number" ? b - a : a.localeCompare(b);
  return typeof a === "number" ? -1 : 1; // words, and what is missing, stay below numbers
};
const sort = (head) => {
  const table = head.closest("table"), column = head.cellIndex;
  const up = head.ariaSort === "descending";
  for (const other of table.tHead.rows[0].cells) other.ariaSort = null;
  head.ariaSort = up ? "ascending" : "descending";
  const rows = [...table.tBodies[0].rows].map((row) => [key(row, column), row]);
  rows.sort(([a], [b]) => (up && typeof a === typeof b ? -compare(a, b) : compare(a, b)));
  table.tBodies[0].append(...rows.map(([, row]) => row));
};
for (const head of document.querySelectorAll("table:not(.words) thead th")) {
  head.tabIndex = 0;
  head.title = "Sort by this column";
  head.addEventListener("click", () => sort(head));
  head.addEventListener("keydown", (event) => event.key === "Enter" && sort(head));
}
