// The series of the charts of a GPU's busy time and queue.

/** A time just after the last part, in seconds, at which lines end: the data has steps of 10 us. */
const afterEndS = 1e-5;

/**
 * Returns the series of the busy share: the bounds with the area between them, and the probable
 * share if it is known.
 *
 * @param {import("./data.js").Busy} gpu
 * @returns {import("./chart.js").Series[]}
 */
export function busySeries(gpu) {
	const series = [
		{ name: "upper bound", ...lineOfParts(gpu, gpu.hi), colour: "--c0", gaps: true, bandTo: 1 },
		{ name: "lower bound", ...lineOfParts(gpu, gpu.lo), colour: "--c0", gaps: true, dash: [2, 2] },
	];
	if (gpu.mid.length > 0) {
		const line = lineOfParts(gpu, gpu.mid);
		series.push({ name: "probably busy", ...line, colour: "--l0", gaps: true });
	}
	return series;
}

/**
 * Returns the series of the queue of a GPU.
 *
 * @param {import("./data.js").Busy} gpu
 * @returns {import("./chart.js").Series[]} none if no operation ever waited in the queue
 */
export function queueSeries(gpu) {
	if (!gpu.qmax.some((n) => n >= 0.05)) return [];
	return [
		{ name: "median", ...lineOfParts(gpu, gpu.q), colour: "--c2", gaps: true },
		{ name: "most", ...lineOfParts(gpu, gpu.qmax), colour: "--c1", gaps: true, off: true },
	];
}

/**
 * Returns the mark at the end of the part of the recording that was read.
 *
 * @param {import("./data.js").Busy} gpu
 * @returns {import("./data.js").Mark[]} none if all was read
 */
export const untilMarks = ({ until }) =>
	(until === undefined ? [] : [{ t: until, text: "read up to here" }]);

/** Returns a line with a value for each part of a GPU's time. It ends with the last part. */
function lineOfParts({ from, to }, values) {
	const starts = values.map((_, i) => from + ((to - from) * i) / values.length);
	return { t: [...starts, to, to + afterEndS], v: [...values, values.at(-1), null] };
}
