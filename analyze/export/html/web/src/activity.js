// The activity panel: a chart of CUDA calls per second.
import { Chart } from "./chart.js";
import { stackColour } from "./memoryseries.js";

/**
 * Draws the activity panel. It stays empty if the recording has no calls.
 *
 * @param {HTMLElement} box
 * @param {import("./data.js").ReportData} data
 * @param {Set<Chart>} charts the new chart is added to this set
 */
export function drawActivity(box, data, charts) {
	if (!data.activity) return;
	const { t, lines } = data.activity;
	const series = lines.map(({ name, v }, i) => (
		{ name, t, v, colour: stackColour(i), stacked: true }));
	const title = "Calls per second";
	charts.add(new Chart(box, { title, unit: "count", height: 180, series, data }));
}
