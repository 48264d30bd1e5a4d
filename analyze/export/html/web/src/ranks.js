// The ranks panel: a chart with the lateness of each rank over time.
import { Chart } from "./chart.js";
import { element } from "./dom.js";
import { rankSeries } from "./rankseries.js";

/**
 * Draws the ranks panel. It stays empty if no ranks are compared.
 *
 * @param {HTMLElement} box
 * @param {import("./data.js").ReportData} data
 * @param {Set<Chart>} charts the new chart is added to this set
 */
export function drawRanks(box, data, charts) {
	if (data.ranks.length === 0) return;
	const title = "Lateness of ranks in each step";
	const panel = element("div", { className: "plotbox" }, element("h4", { text: title }));
	box.append(panel);
	charts.add(new Chart(panel, { title, unit: "ns", height: 220, series: rankSeries(data.ranks), data }));
}
