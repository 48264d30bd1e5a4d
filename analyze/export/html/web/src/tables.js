// Sorting and filtering of tables. The page contains complete tables; this module makes their
// headings sort them, and adds a filter above tables with at least minFilteredRows rows.
import { button, element } from "./dom.js";
import {
	foldedRows, keyOf, maxUnfoldedRows, nextOrder, shownRows, sortedRows, wordsOf,
} from "./rows.js";

const minFilteredRows = 6; // smallest number of rows for which a table gets a filter

/** Makes all tables sortable, and tables with at least minFilteredRows rows filterable. */
export function enhanceTables() {
	for (const table of document.querySelectorAll("table.data")) {
		[...headsOf(table)].forEach((th, column) => {
			const sort = button(th.textContent, () => sortTable(table, column), { title: th.title });
			th.replaceChildren(sort);
		});
		if (bodyOf(table).rows.length >= minFilteredRows) new TableFilter(table);
	}
}

const headsOf = (table) => table.tHead.rows[0].cells;
const bodyOf = (table) => table.tBodies[0];

function sortTable(table, column) {
	const head = headsOf(table)[column];
	const order = nextOrder(head.getAttribute("aria-sort"), head.classList.contains("n"));
	for (const th of headsOf(table)) th.removeAttribute("aria-sort");
	head.setAttribute("aria-sort", order);
	const rows = [...bodyOf(table).rows];
	const keys = rows.map(({ cells }) => keyOf(cells[column].dataset.v, cells[column].textContent));
	bodyOf(table).append(...sortedRows(keys, order).map((i) => rows[i]));
	table.dispatchEvent(new Event("sorted"));
}

/** The filter above a table, and the button below a long table that folds it. */
class TableFilter {
	constructor(table) {
		this.table = table;
		this.rows = [...bodyOf(table).rows];
		this.texts = this.rows.map((row) => row.textContent.toLowerCase());
		this.isLong = this.rows.length > maxUnfoldedRows;
		this.isFolded = this.isLong;
		this.input = this.makeInput();
		this.count = element("span", { role: "status" });
		this.fold = button("", () => this.toggle(), { className: "fold" });
		table.addEventListener("sorted", () => this.show());
		this.show();
		const scroll = table.closest(".scroll");
		scroll.after(this.fold);
		const label = element("label", {}, this.input);
		scroll.before(element("div", { className: "tools" }, label, this.count));
	}

	makeInput() {
		const title = document.getElementById(this.table.id + "-t").textContent;
		const input = element("input", {
			type: "search", placeholder: "filter rows",
			"aria-controls": this.table.id, "aria-label": "Filter rows of " + title,
		});
		input.addEventListener("input", () => this.show());
		return input;
	}

	toggle() {
		this.isFolded = !this.isFolded;
		this.show();
	}

	/** Shows the rows that match the filter. Without a filter a folded table shows its first rows. */
	show() {
		const words = wordsOf(this.input.value), total = this.rows.length;
		const positions = new Map([...bodyOf(this.table).rows].map((row, i) => [row, i]));
		const positionOfRow = this.rows.map((row) => positions.get(row));
		const shown = shownRows(this.texts, positionOfRow, words, this.isFolded);
		this.rows.forEach((row, i) => { row.hidden = !shown[i]; });
		const matches = shown.filter(Boolean).length;
		this.count.textContent = words.length > 0 ? `${matches} of ${total} rows` : "";
		this.fold.hidden = words.length > 0 || !this.isLong;
		this.fold.textContent =
			this.isFolded ? `Show all ${total} rows` : `Show the first ${foldedRows} rows`;
		this.fold.setAttribute("aria-expanded", String(!this.isFolded));
	}
}
