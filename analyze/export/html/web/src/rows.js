// The order of table rows, and the choice of the rows that are shown.

/** Number of rows that a folded table shows. */
export const foldedRows = 12;

/** Largest number of rows of a table that is not folded. Hiding three rows would save no space. */
export const maxUnfoldedRows = foldedRows + 3;

/**
 * @typedef {"ascending" | "descending"} Order
 * @typedef {?(string | number)} Key the sort key of a row; null if its value is unknown
 */

/**
 * Returns the sort key of a table cell.
 *
 * @param {string | undefined} value the number of a cell with numbers, "" if it is unknown;
 *     undefined for a cell with text
 * @param {string} text
 * @returns {Key}
 */
export function keyOf(value, text) {
	if (value === undefined) return text.trim().toLowerCase();
	const number = Number(value);
	return value.trim() === "" || Number.isNaN(number) ? null : number;
}

/**
 * Returns the sort order of a table after a click on a column heading. The first click sorts
 * numbers from the largest to the smallest, and text alphabetically. Further clicks reverse the
 * order.
 *
 * @param {?string} current order of this column; null if it is not sorted
 * @param {boolean} isNumber
 * @returns {Order}
 */
export function nextOrder(current, isNumber) {
	const first = isNumber ? "descending" : "ascending";
	if (current !== first) return first;
	return isNumber ? "ascending" : "descending";
}

/**
 * Returns table rows in sorted order. Rows with equal keys keep their order. Unknown keys come last
 * in both orders.
 *
 * @param {Key[]} keys the key of each row; all keys have the same type
 * @param {Order} order
 * @returns {number[]} indexes of rows
 */
export function sortedRows(keys, order) {
	const sign = order === "ascending" ? 1 : -1;
	return keys.map((_, i) => i).sort((i, j) => compareKeys(keys[i], keys[j], sign));
}

function compareKeys(a, b, sign) {
	if (a === b) return 0;
	if (a === null) return 1;
	if (b === null) return -1;
	return a < b ? -sign : sign;
}

/**
 * Returns the words of a table filter.
 *
 * @param {string} text
 * @returns {string[]} in lower case; empty if the filter is empty
 */
export const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

/**
 * Reports for each row whether it is shown. With a filter, all rows that contain every word are
 * shown. Without a filter, a folded table shows the first rows of its current order.
 *
 * @param {string[]} texts text of each row, in lower case
 * @param {number[]} positions position of each row in the current order
 * @param {string[]} words of the filter
 * @param {boolean} isFolded
 * @returns {boolean[]}
 */
export function shownRows(texts, positions, words, isFolded) {
	return texts.map((text, i) => {
		if (words.length > 0) return words.every((word) => text.includes(word));
		return !isFolded || positions[i] < foldedRows;
	});
}
