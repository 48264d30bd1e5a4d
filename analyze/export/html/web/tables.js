// Tables are complete as they stand in the page. This makes their headings buttons that sort, and
// puts a filter above those that are long enough to need one.
"use strict";

const filterFrom = 6; // rows
const folded = 12; // rows of a long table that are shown at first

function cellKey(row, column) {
	const cell = row.cells[column];
	if (cell.dataset.v === undefined) return cell.textContent.trim().toLowerCase();
	return cell.dataset.v === "" ? null : Number(cell.dataset.v);
}

// Numbers sort from large to small first, text from a to z; what is not known comes last.
function sortTable(table, column) {
	const head = table.tHead.rows[0].cells[column];
	const first = head.classList.contains("n") ? "descending" : "ascending";
	const second = first === "descending" ? "ascending" : "descending";
	const order = head.getAttribute("aria-sort") === first ? second : first;
	for (const th of table.tHead.rows[0].cells) th.removeAttribute("aria-sort");
	head.setAttribute("aria-sort", order);
	const sign = order === "ascending" ? 1 : -1;
	const rows = [...table.tBodies[0].rows].map((row) => [cellKey(row, column), row]);
	rows.sort(([a], [b]) => {
		if (a === b) return 0;
		if (a === null) return 1;
		if (b === null) return -1;
		return a < b ? -sign : sign;
	});
	table.tBodies[0].append(...rows.map(([, row]) => row));
	table.dispatchEvent(new Event("sorted"));
}

function addFilter(table) {
	const tools = document.createElement("div");
	tools.className = "tools";
	const label = document.createElement("label");
	const input = document.createElement("input");
	const count = document.createElement("span");
	input.type = "search";
	input.placeholder = "filter rows";
	input.setAttribute("aria-controls", table.id);
	input.setAttribute("aria-label", "Filter rows of " + document.getElementById(table.id + "-t").textContent);
	count.setAttribute("role", "status");
	const rows = [...table.tBodies[0].rows];
	const more = element("button", { type: "button", className: "fold" });
	let all = rows.length <= folded + 3;
	const texts = rows.map((row) => row.textContent.toLowerCase());
	// A filter looks at all rows; without one a long table shows its first ones, in the order that it has.
	const show = () => {
		const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
		const place = new Map([...table.tBodies[0].rows].map((row, i) => [row, i]));
		let shown = 0;
		rows.forEach((row, i) => {
			row.hidden = words.length ? !words.every((word) => texts[i].includes(word)) : !all && place.get(row) >= folded;
			if (!row.hidden) shown++;
		});
		count.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
		more.hidden = words.length > 0 || rows.length <= folded + 3;
		more.textContent = all ? `Show the first ${folded} rows` : `Show all ${rows.length} rows`;
		more.setAttribute("aria-expanded", String(all));
	};
	input.addEventListener("input", show);
	more.addEventListener("click", () => { all = !all; show(); });
	table.addEventListener("sorted", show);
	show();
	table.closest(".scroll").after(more);
	label.append(input);
	tools.append(label, count);
	table.closest(".scroll").before(tools);
}

function enhanceTables() {
	for (const table of document.querySelectorAll("table.data")) {
		[...table.tHead.rows[0].cells].forEach((th, column) => {
			const button = document.createElement("button");
			button.type = "button";
			button.textContent = th.textContent;
			button.title = th.title;
			button.addEventListener("click", () => sortTable(table, column));
			th.replaceChildren(button);
		});
		if (table.tBodies[0].rows.length >= filterFrom) addFilter(table);
	}
}
