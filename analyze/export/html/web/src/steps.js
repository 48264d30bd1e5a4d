// The steps panel: a chart of each process with a dot for each step.
import { Chart } from "./chart.js";
import { element } from "./dom.js";
import { outlierLabels, stepSeries, stepTexts } from "./stepseries.js";

const hint = "Point at a step, or press the arrow keys, to see its number and duration, and what " +
	"differed in an outlier. Drag to zoom, double-click to reset.";

/**
 * Draws the steps panel. It stays empty if no process has steps.
 *
 * @param {HTMLElement} box
 * @param {import("./data.js").ReportData} data
 * @param {Set<Chart>} charts the new charts are added to this set
 */
export function drawSteps(box, data, charts) {
	for (const steps of data.steps) {
		const series = stepSeries(data, steps), texts = stepTexts(data, steps);
		const status = element("p", { className: "status two", role: "status", text: hint });
		const place = element("div"), panel = element("div", { className: "plotbox" }, place, status);
		if (data.steps.length > 1) panel.prepend(element("h3", { text: `Process ${steps.title}` }));
		box.append(panel);
		charts.add(new Chart(place, {
			title: `Steps of process ${steps.title}`, unit: "ns", height: 240, series, data,
			labels: outlierLabels(data, steps, series), stops: [...texts.keys()],
			onCursor: (t) => { status.textContent = texts.get(t) ?? hint; },
		}));
	}
}
