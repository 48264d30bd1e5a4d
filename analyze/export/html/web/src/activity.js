// The panel of CUDA calls a second.
import { Chart } from "./chart.js";
import { stackColour } from "./memoryseries.js";

/**
 * Draws the panel. It is empty if no calls were recorded.
 *
 * @param {HTMLElement} box
 * @param {import("./data.js").ReportData} data
 * @param {Set<Chart>} charts gets the chart
 */
export function drawActivity(box, data, charts) {
	if (!data.activity) return;
	const { t, lines } = data.activity;
	const series = lines.map(({ name, v }, i) => (
		{ name, t, v, colour: stackColour(i), stacked: true }));
	charts.add(new Chart(box, { title: "Calls a second", unit: "count", height: 180, series, data }));
}
