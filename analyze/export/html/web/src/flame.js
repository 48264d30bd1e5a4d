// The flame graph panel, drawn by d3-flame-graph with the root at the top. It has full keyboard
// control.
import { button, element } from "./dom.js";
import { depthOf, frameAfterKey, framesOf, isMatch, usableMetrics } from "./flametree.js";
import { d3, flamegraph } from "./libraries.js";
import { percentText, textOfUnit } from "./text.js";

const rowHeight = 18; // pixels
const kindColours = ["--flame-native", "--flame-python", "--flame-other"];

/**
 * Draws the flame graph panel. It stays empty if no metric has a value above 0.
 *
 * @param {HTMLElement} box
 * @param {import("./data.js").ReportData} data
 * @param {Set<{draw: function(): void}>} charts the flame graph is added to this set
 */
export function drawFlame(box, { flame, texts }, charts) {
	if (!flame) return;
	const metrics = usableMetrics(flame);
	if (metrics.length > 0) charts.add(new FlamePanel(box, flame, texts, metrics));
}

class FlamePanel {
	/** Printing scales the graph instead of drawing it again, because d3 would draw too late. */
	screenOnly = true;

	constructor(box, flame, texts, metrics) {
		Object.assign(this, { flame, texts, metric: metrics[0] });
		this.search = element("input", {
			type: "search", id: "flame-search",
			placeholder: "search frames", "aria-label": "Search frames",
		});
		this.search.addEventListener("input", () => this.find(this.search.value.trim()));
		this.status = element("p", { className: "status", id: "flame-status", role: "status" });
		this.container = element("div", { className: "flame" });
		this.container.addEventListener("keydown", (e) => this.onKey(e));
		box.append(this.makeTools(metrics), this.container, this.status);
		this.draw();
	}

	makeTools(metrics) {
		const options = metrics.map((i) =>
			element("option", { value: i, text: this.flame.metrics[i].name }));
		const choice = element("select", { id: "flame-metric" }, ...options);
		choice.addEventListener("change", () => this.choose(Number(choice.value)));
		return element("div", { className: "tools" },
			element("label", { text: "Width: ", htmlFor: "flame-metric" }), choice, this.search,
			button("Reset zoom", () => this.reset(), { id: "flame-reset" }),
			element("span", { text: "Arrow keys move, Enter zooms, Escape resets." }));
	}

	valueText(value) {
		const text = textOfUnit(this.flame.metrics[this.metric].unit)(value);
		return `${text}, ${percentText(value, this.flame.root.v[this.metric])} %`;
	}

	/** Returns the name and the value of a frame that d3 has drawn, as text. */
	frameText(frame) {
		return `${frame.data.name}: ${this.valueText(frame.data.value)}`;
	}

	choose(metric) {
		this.metric = metric;
		this.status.textContent = "";
		this.draw();
	}

	/** Draws the graph with the current width, and applies the current search again. */
	draw() {
		const tree = framesOf(this.flame.root, this.texts, this.metric);
		this.container.replaceChildren();
		this.graph = this.makeGraph((depthOf(tree) + 0.1) * rowHeight);
		d3.select(this.container).datum(tree).call(this.graph);
		const svg = this.container.firstChild;
		svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
		svg.setAttribute("role", "group");
		svg.setAttribute("aria-label", "Flame graph: " + this.flame.metrics[this.metric].name);
		this.makeFocusable();
		if (this.search.value) this.find(this.search.value);
	}

	makeGraph(height) {
		const colour = (frame) =>
			`var(${frame.highlight ? "--flame-hit" : kindColours[frame.data.kind]})`;
		return flamegraph.default()
			.width(Math.max(240, this.container.clientWidth)).height(height).cellHeight(rowHeight)
			.inverted(true).transitionDuration(0).minFrameSize(1)
			.setColorMapper(colour)
			.setLabelHandler((frame) => this.frameText(frame))
			.onClick((frame) => {
				this.status.textContent = this.frameText(frame);
				this.makeFocusable();
			});
	}

	/** Highlights the frames whose name contains the term, and shows the sum of their values. */
	find(term) {
		let hits = 0, sum = 0;
		this.graph.setSearchMatch((frame) => isMatch(frame.data.name, term));
		this.graph.setSearchHandler((results, matched) => { hits = results.length; sum = matched; });
		if (term) this.graph.search(term);
		else this.graph.clear();
		const verb = hits === 1 ? "frame matches" : "frames match";
		this.status.textContent = term ? `${hits} ${verb} “${term}”: ${this.valueText(sum)}` : "";
		this.makeFocusable();
	}

	reset() {
		this.search.value = "";
		this.graph.clear();
		this.graph.resetZoom();
		this.makeFocusable();
		this.status.textContent = "";
	}

	groups() {
		return [...this.container.querySelectorAll("g.frame")];
	}

	/**
	 * Makes one frame reachable with Tab: wanted if it is given, else the frame that was reachable
	 * before, else the root.
	 */
	makeFocusable(wanted) {
		const groups = this.groups();
		const current = wanted ?? groups.find((g) => g.tabIndex === 0) ?? groups[0];
		for (const g of groups) {
			g.tabIndex = g === current ? 0 : -1;
			g.setAttribute("role", "button");
			g.setAttribute("aria-label", this.frameText(g.__data__));
		}
	}

	focus(frame) {
		const group = this.groups().find((g) => g.__data__ === frame);
		if (!group) return;
		this.makeFocusable(group);
		group.focus();
		this.status.textContent = this.frameText(frame);
	}

	/** Arrow keys move the focus, Enter and Space zoom, Escape shows the whole graph. */
	onKey(e) {
		const frame = document.activeElement.__data__;
		if (!frame) return;
		const next = frameAfterKey(frame, e.key);
		if (!next) {
			if (e.key === "Enter" || e.key === " ") this.graph.zoomTo(frame);
			else if (e.key === "Escape") this.graph.resetZoom();
			else return;
		}
		this.focus(next ?? frame);
		e.preventDefault();
	}
}
