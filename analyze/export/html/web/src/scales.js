// Ranges and ticks of chart axes.

/**
 * The possible distances between ticks on an axis of bytes: powers of two, so that labels are whole
 * numbers of KiB, MiB or GiB.
 *
 * @type {number[]}
 */
export const byteSteps = Array.from({ length: 51 }, (_, i) => 2 ** i);

/**
 * Returns the range of the time axis of a chart: the zoomed range, or the whole window if that
 * range is empty.
 *
 * @param {?number} min seconds
 * @param {?number} max seconds
 * @param {number} fromS start of the window, in seconds
 * @param {number} toS end of the window, in seconds
 * @returns {[number, number]}
 */
export const timeRange = (min, max, fromS, toS) => (max > min ? [min, max] : [fromS, toS]);

/**
 * Returns the range of the value axis of a chart. It contains 0, and ends 6 % above the largest
 * value.
 *
 * @param {?number} min smallest value; null or NaN if there is none
 * @param {?number} max largest value; null or NaN if there is none
 * @returns {[number, number]}
 */
export function valueRange(min, max) {
	const bottom = Number.isFinite(min) ? Math.min(0, min) : 0;
	const top = Number.isFinite(max) && max > 0 ? max * 1.06 : 1;
	return [bottom, top];
}

/**
 * Returns the label of a tick on the time axis.
 *
 * @param {number} s seconds
 * @returns {string}
 */
export const secondsTick = (s) => `${Number(s.toFixed(6))} s`;
