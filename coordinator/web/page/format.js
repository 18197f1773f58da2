// Numbers, words and elements.

export function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

// "STATE_RUNNING" -> "running"
export const word = (value) => value.replace(/^[A-Z]+_/, "").toLowerCase().replaceAll("_", " ");

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = Number(count), unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    ++unit;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

const kSchedule = {
  atStart: "at start", everyForwards: "forwards", everySteps: "steps",
  beforeEvaluation: "before evaluation", beforeCheckpoint: "before checkpoint",
};

// "at start, every 10 steps"
export function schedule(value) {
  const words = [];
  for (const [field, name] of Object.entries(kSchedule)) {
    const set = value?.[field];
    if (set === true) words.push(name);
    if (typeof set === "string" && set !== "0") {
      words.push(set === "1" ? `every ${name.slice(0, -1)}` : `every ${set} ${name}`);
    }
  }
  return words.join(", ") || "on command";
}

// Makes the table's body have these rows, keeping those that are there: [[text, class], ...] each.
export function fillTable(table, rows) {
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, r) => {
    const row = body.rows[r] ?? body.insertRow();
    cells.forEach(([text, className = ""], c) => {
      const cell = row.cells[c] ?? row.insertCell();
      if (cell.textContent !== text) cell.textContent = text;
      if (cell.className !== className) cell.className = className;
    });
  });
}
