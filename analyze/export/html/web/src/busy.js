// The panel of the busy time: for each GPU, a chart of its busy share and one of its queue.
import { busySeries, queueSeries, untilMarks } from "./busyseries.js";
import { Chart } from "./chart.js";
import { element } from "./dom.js";

/**
 * Draws the panel of the busy time. It stays empty if the recording has no GPU times.
 *
 * @param {HTMLElement} box
 * @param {import("./data.js").ReportData} data
 * @param {Set<Chart>} charts the new charts are added to this set
 */
export function drawBusy(box, data, charts) {
	const isWide = data.busy.length === 1;
	const grid = element("div", { className: isWide ? "gpus wide" : "gpus" });
	box.append(grid);
	for (const gpu of data.busy) {
		const cell = element("div", { className: "plotbox" });
		grid.append(cell);
		const draw = (title, options) => {
			const name = `${gpu.title}, ${title}`;
			cell.append(element("h4", { text: name }));
			charts.add(new Chart(cell, { title: name, data, marks: untilMarks(gpu), ...options }));
		};
		draw("busy share", { unit: "%", height: isWide ? 220 : 160, series: busySeries(gpu), leastTop: 100 });
		const series = queueSeries(gpu);
		if (series.length > 0) draw("operations in the queue", { unit: "count", height: 120, series, leastTop: 2 });
	}
}
