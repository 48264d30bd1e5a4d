// The memory panel: a chart of live memory over time, and a table of the largest holders at the
// selected time.
import { Chart } from "./chart.js";
import { holdersAt } from "./data.js";
import { button, element } from "./dom.js";
import { memorySeries } from "./memoryseries.js";
import { indexAt } from "./series.js";
import { bytesText, countText, percentText, secondsText } from "./text.js";

const chartKeysHint = "Drag to zoom, double-click to reset. Arrow keys move from point to point.";
const envelopeHint = "Memory changes too fast to draw each change. The areas show the maximum of " +
	"each part of the time, the dotted line shows the minimum.";

/**
 * Draws the memory panel. It stays empty if the recording has no live memory.
 *
 * @param {HTMLElement} box
 * @param {import("./data.js").ReportData} data
 * @param {Set<Chart>} charts gets the chart that is shown
 */
export function drawMemory(box, data, charts) {
	if (data.memory.length > 0) new MemoryPanel(box, data, charts);
}

class MemoryPanel {
	constructor(box, data, charts) {
		Object.assign(this, { data, charts });
		this.container = element("div");
		this.detail = element("div", { className: "detail", role: "status" });
		box.append(this.makeTools(), this.container, this.detail);
		this.show(data.memory[0]);
	}

	makeTools() {
		const tools = element("div", { className: "tools" });
		if (this.data.memory.length > 1) tools.append(...this.makeDeviceChoice());
		tools.append(
			button("Holders at the peak", () => this.showHolders(this.memory.peak)),
			button("Holders at the end", () => this.showHolders(this.memory.t.length - 1)),
			element("span", { text: chartKeysHint }));
		return tools;
	}

	makeDeviceChoice() {
		const options = this.data.memory.map((m, i) => element("option", { value: i, text: m.title }));
		const choice = element("select", { id: "device" }, ...options);
		choice.addEventListener("change", () => this.show(this.data.memory[choice.value]));
		return [element("label", { text: "Memory of ", htmlFor: "device" }), choice];
	}

	/** Shows the chart of a device, and the holders at its peak. */
	show(memory) {
		this.memory = memory;
		const { series, isEnvelope } = memorySeries(this.data, memory);
		this.container.replaceChildren();
		if (isEnvelope) {
			this.container.append(element("p", { className: "about", text: envelopeHint }));
		}
		this.charts.delete(this.chart);
		this.chart = new Chart(this.container, {
			title: "Memory over time", unit: "bytes", height: 320, series, data: this.data,
			stops: memory.t, onPick: (t) => this.showHolders(indexAt(memory.t, t)),
		});
		this.charts.add(this.chart);
		this.showHolders(memory.peak);
	}

	/** Shows the largest holders of memory at the moment with index k. */
	showHolders(k) {
		const { t, total, peak, title } = this.memory;
		const at = secondsText(t[k]) + (k === peak ? ", the peak" : "");
		const table = holdersTable(holdersAt(this.data, this.memory, k), total[k]);
		this.detail.replaceChildren(
			element("h3", { text: `Live at ${at}: ${bytesText(total[k])}, ${title}` }),
			element("div", { className: "scroll" }, table));
	}
}

function holdersTable(holders, totalBytes) {
	const heads = ["Held", "Share%", "Count", "Kind", "Site"].map((text, i) =>
		element("th", { scope: "col", className: i < 3 ? "n" : "", text }));
	return element("table", { className: "data" },
		element("thead", {}, element("tr", {}, ...heads)),
		element("tbody", {}, ...holders.map((holder) => holderRow(holder, totalBytes))));
}

function holderRow({ bytes, blocks, kind, site, frames }, totalBytes) {
	const number = (text) => element("td", { className: "n", text });
	return element("tr", {}, number(bytesText(bytes)), number(percentText(bytes, totalBytes)),
		number(countText(blocks)), element("td", { text: kind }),
		element("td", { className: "label" }, frames.length > 0 ? siteWithStack(site, frames) : site));
}

function siteWithStack(site, frames) {
	const items = frames.map((text) => element("li", { text }));
	return element("details", {},
		element("summary", { text: site }), element("ol", { className: "stack" }, ...items));
}
