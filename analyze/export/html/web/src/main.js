// Entry point of the page's scripts. It makes tables sortable, draws the charts, and redraws them
// when the window is resized or the page is printed.
import { drawActivity } from "./activity.js";
import { drawBusy } from "./busy.js";
import { parseReport } from "./data.js";
import { drawFlame } from "./flame.js";
import { drawGPUs } from "./gpus.js";
import { drawMemory } from "./memory.js";
import { followSections } from "./navigation.js";
import { drawRanks } from "./ranks.js";
import { drawSteps } from "./steps.js";
import { enhanceTables } from "./tables.js";
import { Theme } from "./theme.js";

const panels = {
	memory: drawMemory, activity: drawActivity, busy: drawBusy, steps: drawSteps, ranks: drawRanks,
	gpus: drawGPUs, flame: drawFlame,
};
const resizeDelayMs = 120;
const paperWidth = "680px";

/** The charts and the flame graph. All are drawn again after a change of width or theme. */
const charts = new Set();
const theme = new Theme(document.getElementById("theme"), redraw);

function redraw() {
	for (const chart of charts) chart.draw();
}

function drawPanels() {
	const data = parseReport(document.getElementById("data").textContent);
	for (const box of document.querySelectorAll("[data-chart]")) {
		panels[box.dataset.chart](box, data, charts);
	}
}

function followWidth() {
	let width = innerWidth, timer;
	addEventListener("resize", () => {
		if (innerWidth === width || theme.isPrinting) return;
		width = innerWidth;
		clearTimeout(timer);
		timer = setTimeout(redraw, resizeDelayMs);
	});
}

function setPrinting(isPrinting) {
	if (isPrinting === theme.isPrinting) return;
	document.querySelector("main").style.width = isPrinting ? paperWidth : "";
	theme.setPrinting(isPrinting);
	for (const chart of charts) if (!chart.screenOnly) chart.draw();
}

for (const e of document.querySelectorAll(".scripted")) e.hidden = false;
for (const e of document.querySelectorAll(".unscripted")) e.hidden = true;
enhanceTables();
drawPanels();
followWidth();
addEventListener("beforeprint", () => setPrinting(true));
addEventListener("afterprint", () => setPrinting(false));
followSections();
document.documentElement.dataset.ready = String(Math.round(performance.now()));
