// The GPU panel: charts of NVML and GPM metrics over time.
import { Chart } from "./chart.js";
import { element } from "./dom.js";
import { stackColour } from "./memoryseries.js";

/**
 * Draws the GPU panel: a group of charts for each GPU.
 *
 * @param {HTMLElement} box
 * @param {import("./data.js").ReportData} data
 * @param {Set<Chart>} charts the new charts are added to this set
 */
export function drawGPUs(box, data, charts) {
	for (const gpu of data.gpus) {
		const grid = element("div", { className: "gpus" });
		box.append(element("h3", { text: gpu.title }), grid);
		for (const { title, unit, lines } of gpu.charts) {
			const cell = element("div", { className: "plotbox" }, element("h4", { text: title }));
			grid.append(cell);
			const series = lines.map((line, i) => ({ ...line, colour: stackColour(i) }));
			const name = `${gpu.title}, ${title}`;
			charts.add(new Chart(cell, { title: name, unit, height: 150, series, data }));
		}
	}
}
