// The series of the memory chart.
import { groupName, bytesOfOtherSites, otherSitesName } from "./data.js";
import { envelope, extent } from "./series.js";

const numStackColours = 9, numLineColours = 5;

// A line above this multiple of the memory peak is hidden at first: it would flatten the others.
const hiddenLineFactor = 3;

/**
 * Returns the series of a memory chart: one stacked series for each allocation site, one for the
 * remaining sites, and other totals as lines. Memory that changes too fast is shown as its
 * envelope.
 *
 * @param {import("./data.js").ReportData} data
 * @param {import("./data.js").Memory} memory
 * @returns {{series: import("./chart.js").Series[], isEnvelope: boolean}}
 */
export function memorySeries(data, memory) {
	const outline = envelope(memory, data.from, data.to);
	const most = (v) => ({ t: outline.t, v: outline.at.map((k) => (k < 0 ? 0 : v[k])) });
	const points = (v) => (outline ? most(v) : { t: memory.t, v });
	const series = memory.shown.map((group, i) => ({
		name: groupName(data, group, memory.shown), ...points(memory.series[i]),
		colour: stackColour(i), stacked: true,
	}));
	const rest = bytesOfOtherSites(memory);
	if (rest.some((v) => v > 0)) {
		series.push({ name: otherSitesName, ...points(rest), colour: "--rest", stacked: true });
	}
	if (outline) series.push(leastSeries(outline));
	const peakBytes = extent(memory.total)?.max ?? 0;
	memory.lines.forEach((line, i) => series.push(totalSeries(line, i, peakBytes)));
	return { series, isEnvelope: outline !== null };
}

/**
 * Returns the colour of a stacked series.
 *
 * @param {number} i index of the series; colours repeat
 * @returns {string} name of a CSS variable
 */
export const stackColour = (i) => `--c${i % numStackColours}`;

function leastSeries({ t, least }) {
	return { name: "minimum of each part of the time", t, v: least, colour: "--text", dash: [2, 3] };
}

function totalSeries(line, i, peakBytes) {
	const isDetail = line.name === "PyTorch allocated" || line.name.startsWith("all of");
	return {
		...line, colour: `--l${i % numLineColours}`,
		dash: line.name.endsWith("NVML") ? [6, 4] : undefined,
		off: isDetail || extent(line.v)?.max > hiddenLineFactor * peakBytes,
	};
}
