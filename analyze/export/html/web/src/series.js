// Values over time. Lines are step functions: a value holds until the next point.

/**
 * Returns the index of the last time that is not after t, or 0 if all times are after t.
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
 * Merges lines with different times onto one time axis.
 *
 * @param {{t: number[], v: ?number[], points: boolean}[]} lines times in seconds, ascending, and
 *     values; those with points have values at their own times only
 * @param {number} fromS start of the axis, in seconds
 * @param {number} toS end of the axis, in seconds
 * @returns {?number[][]} the times, then the values of each line; a value is null before the
 *     line's first point
 */
export function mergeLines(lines, fromS, toS) {
	const times = [...new Set([fromS, toS, ...lines.flatMap((line) => line.t)])].sort((a, b) => a - b);
	return [times, ...lines.map((line) => valuesAt(line, times))];
}

function valuesAt(line, times) {
	if (line.points) {
		const values = new Map(line.t.map((t, i) => [t, line.v[i]]));
		return times.map((t) => values.get(t) ?? null);
	}
	let i = -1;
	return times.map((t) => {
		while (i + 1 < line.t.length && line.t[i + 1] <= t) i++;
		return i < 0 ? null : line.v[i];
	});
}

/**
 * Adds the values of a line to those of the line below it, for a stacked chart.
 *
 * @param {?number[]} values unknown ones count as 0
 * @param {?number[]} below the line below; null if there is none
 * @returns {number[]}
 */
export const stackValues = (values, below) =>
	values.map((v, k) => (v ?? 0) + (below ? below[k] : 0));

/**
 * Returns the smallest and the largest finite value, or null if there is none.
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

/** Number of equal parts of the window in an envelope. */
export const envelopeParts = 200;

/**
 * Returns the envelope of live memory that rises and falls quickly: the maximum and the minimum of
 * each part of the window. Without an envelope the chart would be a solid comb of vertical lines.
 *
 * @param {{t: number[], total: number[]}} memory moments in seconds, and bytes
 * @param {number} fromS start of the window, in seconds
 * @param {number} toS end of the window, in seconds
 * @returns {?{t: number[], at: number[], least: number[]}} for each part its start in seconds, the
 *     index of the moment with most bytes (-1 before the first moment), and its fewest bytes.
 *     null if memory falls below 80 % of its maximum in at most a quarter of the parts
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
