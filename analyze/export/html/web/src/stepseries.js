// The series of the chart of steps.
import { nsText, secondsText } from "./text.js";

/** Colours of outliers by their cause: names of CSS variables. */
const causeColours = {
	"outside CUDA": "--c1", "in a call": "--c4", "waits for GPU": "--c3", "more launches": "--c2",
	"slow kernel": "--c6", "many places": "--c5",
};
const otherColour = "--text";

/**
 * Returns the series of a chart of steps: the steps that are no outliers, the median, and the
 * outliers of each cause.
 *
 * @param {import("./data.js").ReportData} data
 * @param {import("./data.js").Steps} steps
 * @returns {import("./chart.js").Series[]}
 */
export function stepSeries({ texts, from, to }, { t, ns, median, outliers }) {
	const series = [
		{ name: "median", t: [from, to], v: [median, median], colour: "--dim", dash: [6, 4] },
		{ name: "steps", t, v: ns, colour: "--c0", points: true },
	];
	const names = Object.keys(causeColours);
	for (const cause of [...names, ...otherCauses(texts, outliers)]) {
		const list = outliers.filter(({ c }) => texts[c] === cause);
		if (list.length === 0) continue;
		series.push({
			name: outlierName(cause), t: list.map((o) => o.t), v: list.map((o) => o.ns),
			colour: causeColours[cause] ?? otherColour, points: true,
		});
	}
	return series;
}

const otherCauses = (texts, outliers) =>
	[...new Set(outliers.map(({ c }) => texts[c]))].filter((cause) => !(cause in causeColours));

const outlierName = (cause) => `outlier: ${cause || "unknown cause"}`;

/**
 * Returns the texts next to the outliers of a chart.
 *
 * @param {import("./data.js").ReportData} data
 * @param {import("./data.js").Steps} steps
 * @param {import("./chart.js").Series[]} series of stepSeries
 * @returns {import("./pointlabels.js").PointLabel[]}
 */
export const outlierLabels = ({ texts }, { outliers }, series) => outliers.map(({ t, ns, c }) => ({
	t, v: ns, text: texts[c] || "unknown cause",
	series: series.findIndex(({ name }) => name === outlierName(texts[c])),
}));

/**
 * Returns sentences about steps by their begin: number, time and duration; for outliers also what
 * differed.
 *
 * @param {import("./data.js").ReportData} data
 * @param {import("./data.js").Steps} steps
 * @returns {Map<number, string>}
 */
export function stepTexts({ texts }, { t, ns, n, median, outliers }) {
	const sentence = (number, atS, durNs) =>
		`Step ${number} at ${secondsText(atS)}: ${nsText(durNs)}`;
	const list = t.map((atS, i) => [atS, sentence(n[i], atS, ns[i])]);
	for (const o of outliers) {
		const longer = `${nsText(o.ns - median)} longer than the median`;
		const cause = texts[o.c] || "unknown cause";
		const text = `${sentence(o.n, o.t, o.ns)}, ${longer}. Outlier, ${cause}: ${texts[o.d]}`;
		list.push([o.t, text]);
	}
	return new Map(list.sort((a, b) => a[0] - b[0]));
}
