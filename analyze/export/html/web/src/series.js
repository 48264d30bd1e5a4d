// Values over time. A value holds until the next point of its line: lines are steps.

/**
 * Returns the index of the last time that is not after t; 0 if all are.
 *
 * @param {number[]} times ascending, in seconds
 * @param {number} t seconds
 * @returns {number}
 */
export function indexAt(times, t) {
	let low = 0, high = times.length;
	while (high - low > 1) {
		const middle = (low + high) >> 1;
		if (times[middle] <= t + 1e-9) low = middle;
		else high = middle;
	}
	return low;
}

/**
 * Puts lines with times of their own on one axis.
 *
 * @param {{t: number[], v: ?number[]}[]} lines times in seconds, ascending, and values
 * @param {number} fromS start of the axis, in seconds
 * @param {number} toS end of the axis, in seconds
 * @returns {?number[][]} the times, then the values of each line; null before its first point
 */
export function mergeLines(lines, fromS, toS) {
	const times = [...new Set([fromS, toS, ...lines.flatMap((line) => line.t)])].sort((a, b) => a - b);
	return [times, ...lines.map((line) => valuesAt(line, times))];
}

function valuesAt(line, times) {
	let i = -1;
	return times.map((t) => {
		while (i + 1 < line.t.length && line.t[i + 1] <= t) i++;
		return i < 0 ? null : line.v[i];
	});
}

/**
 * Puts a line on top of another one.
 *
 * @param {?number[]} values unknown ones count as 0
 * @param {?number[]} below the line below; null if there is none
 * @returns {number[]}
 */
export const stackOn = (values, below) => values.map((v, k) => (v ?? 0) + (below ? below[k] : 0));

/**
 * Returns the least and the largest known value; null if no value is known.
 *
 * @param {?number[]} values
 * @returns {?{min: number, max: number}}
 */
export function extent(values) {
	let min = Infinity, max = -Infinity;
	for (const v of values) {
		if (!Number.isFinite(v)) continue;
		if (v < min) min = v;
		if (v > max) max = v;
	}
	return min <= max ? { min, max } : null;
}

/** Parts of the window in an envelope. */
export const envelopeParts = 200;

/**
 * Returns the envelope of memory that swings: the moment with most, and the least, of each part of
 * the window. Such memory would be drawn as a comb.
 *
 * @param {{t: number[], total: number[]}} memory moments in seconds, and bytes
 * @param {number} fromS start of the window, in seconds
 * @param {number} toS end of the window, in seconds
 * @returns {?{t: number[], at: number[], least: number[]}} for each part its start in seconds, the
 *     index of the moment with most (-1: before the first) and the least bytes; null if memory
 *     swings in a quarter of the parts or less
 */
export function envelope(memory, fromS, toS) {
	const result = { t: [], at: [], least: [] };
	const total = (i) => (i < 0 ? 0 : memory.total[i]);
	let k = -1, swings = 0;
	for (let part = 0; part < envelopeParts; part++) {
		const isLast = part === envelopeParts - 1;
		const endS = fromS + ((toS - fromS) * (part + 1)) / envelopeParts;
		let high = k, low = k;
		while (k + 1 < memory.t.length && (isLast || memory.t[k + 1] < endS)) {
			k++;
			if (total(k) > total(high)) high = k;
			if (total(k) < total(low)) low = k;
		}
		result.t.push(fromS + ((toS - fromS) * part) / envelopeParts);
		result.at.push(high);
		result.least.push(total(low));
		if (total(low) < 0.8 * total(high)) swings++;
	}
	return swings > envelopeParts / 4 ? result : null;
}
