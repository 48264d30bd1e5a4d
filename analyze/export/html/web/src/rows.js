// Rows of tables: their order and which of them are shown.

/** Rows of a long table that are shown at first. */
export const foldedRows = 12;

/** Rows up to which a table is not long: hiding three would save nothing. */
export const longTable = foldedRows + 3;

/**
 * @typedef {"ascending" | "descending"} Order
 * @typedef {?(string | number)} Key what a row is sorted by; null is unknown
 */

/**
 * Returns the key of a cell.
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
 * Returns the order after a click on a heading: numbers begin with the largest, text with a.
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
 * Returns the order of rows. Equal keys stay as they are, unknown ones come last in both orders.
 *
 * @param {Key[]} keys one per row; all of one column, so of one type
 * @param {Order} order
 * @returns {number[]} indexes of rows
 */
export function sortedRows(keys, order) {
	const sign = order === "ascending" ? 1 : -1;
	return keys.map((_, i) => i).sort((i, j) => compare(keys[i], keys[j], sign));
}

function compare(a, b, sign) {
	if (a === b) return 0;
	if (a === null) return 1;
	if (b === null) return -1;
	return a < b ? -sign : sign;
}

/**
 * Returns the words of a filter.
 *
 * @param {string} text
 * @returns {string[]} lower case; empty if the filter is
 */
export const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

/**
 * Reports which rows are shown. A filter looks at all rows. Without one, a folded table shows its
 * first rows in the order that they have.
 *
 * @param {string[]} texts text of each row, in lower case
 * @param {number[]} places place of each row in the current order
 * @param {string[]} words of the filter
 * @param {boolean} isFolded
 * @returns {boolean[]}
 */
export function shownRows(texts, places, words, isFolded) {
	return texts.map((text, i) => {
		if (words.length > 0) return words.every((word) => text.includes(word));
		return !isFolded || places[i] < foldedRows;
	});
}
