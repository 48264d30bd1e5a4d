// A chart over time, drawn by uPlot, with a legend that shows and hides its series.
import { element, themeColour } from "./dom.js";
import { uPlot } from "./libraries.js";
import { marksPlugin } from "./marks.js";
import { pointLabelsPlugin } from "./pointlabels.js";
import { byteSteps, secondsTick, timeRange, valueRange } from "./scales.js";
import { extent, indexAt, mergeLines, stackValues } from "./series.js";
import { textOfUnit } from "./text.js";

/**
 * @typedef {object} Series
 * @property {string} name
 * @property {number[]} t seconds, ascending
 * @property {?number[]} v
 * @property {string} colour name of a CSS variable
 * @property {boolean} [stacked] the series is drawn on top of the previous stacked series
 * @property {number[]} [dash] lengths of dashes and gaps, in pixels
 * @property {boolean} [off] the series is hidden at first
 * @property {boolean} [points] the series is drawn as dots, without a line between them
 * @property {boolean} [gaps] the line stops where a value is null; by default it continues
 * @property {number} [bandTo] index of the series to which the area from this one is filled
 *
 * @typedef {object} ChartOptions
 * @property {string} title
 * @property {string} unit a unit of textOfUnit
 * @property {number} height pixels
 * @property {Series[]} series
 * @property {import("./data.js").ReportData} data source of the chart's window and marks
 * @property {function(number): void} [onPick] is called with the time, in seconds, that a click or
 *     a key selects
 * @property {number[]} [stops] times at which the arrow keys stop; by default all points
 * @property {function(?number): void} [onCursor] is called with the time at the cursor, in seconds,
 *     or null if there is none
 * @property {number} [leastTop] the axis of values reaches at least up to this value
 * @property {import("./data.js").Mark[]} [marks] further marks
 * @property {import("./pointlabels.js").PointLabel[]} [labels] texts next to points
 */

/** A chart with keyboard control and a legend. */
export class Chart {
	/**
	 * @param {HTMLElement} parent
	 * @param {ChartOptions} options
	 */
	constructor(parent, { title, unit, height, series, data, ...options }) {
		const { onPick, stops, onCursor, leastTop, marks = [], labels = [] } = options;
		Object.assign(this, { unit, height, series, data, onPick, stops, onCursor, leastTop, labels });
		this.marks = [...data.marks, ...marks].sort((a, b) => a.t - b.t);
		this.text = textOfUnit(unit);
		this.hidden = new Set(series.flatMap((s, i) => (s.off ? [i] : [])));
		this.plot = element("div", {
			className: "plot", tabIndex: 0, role: "img", "aria-label": `${title}: ${this.describe()}`,
		});
		this.entries = series.map((s, i) => this.makeEntry(s, i));
		const items = this.entries.map(({ button }) => element("li", {}, button));
		parent.append(this.plot, element("ul", { className: "legend" }, ...items));
		this.plot.addEventListener("keydown", (e) => this.onKey(e));
		this.draw();
	}

	/** Returns the ranges of all series as text, for screen readers. */
	describe() {
		return this.series.map((s) => {
			const range = extent(s.v);
			return range ? `${s.name} from ${this.text(range.min)} to ${this.text(range.max)}` : s.name;
		}).join("; ");
	}

	/** Creates the legend entry of a series: a button that shows and hides the series. */
	makeEntry(series, i) {
		const shape = series.stacked ? "" : series.points ? " dot" : " stroke";
		const swatch = element("span", { className: `swatch${shape}` });
		const value = element("span", { className: "value" });
		const name = element("span", { className: "name", text: series.name });
		const button = element("button", { type: "button", title: series.name }, swatch, name, value);
		const showState = () => button.setAttribute("aria-pressed", String(!this.hidden.has(i)));
		showState();
		button.addEventListener("click", () => {
			if (!this.hidden.delete(i)) this.hidden.add(i);
			showState();
			this.draw();
		});
		return { button, swatch, value };
	}

	/** Draws the chart with the current width and theme. */
	draw() {
		const width = Math.max(240, this.plot.clientWidth);
		const selected = this.u?.cursor.idx;
		this.u?.destroy();
		this.merged = mergeLines(this.series, this.data.from, this.data.to);
		const { values, series, bands } = this.layers();
		const options = { ...this.plotOptions(), width, height: this.height, series, bands };
		this.u = new uPlot(options, values, this.plot);
		this.showValues(selected);
	}

	/** Returns the input of uPlot: values, series options, and the bands between stacked series. */
	layers() {
		const values = [this.merged[0]], series = [{}], bands = [];
		let below = null, last = -1;
		this.series.forEach((s, i) => {
			const colour = themeColour(s.colour), show = !this.hidden.has(i);
			this.entries[i].swatch.style.background = colour;
			let line = this.merged[i + 1];
			if (s.stacked && show) {
				below = line = stackValues(line, below);
				if (last >= 0) bands.push({ series: [i + 1, last + 1] });
				last = i;
			}
			if (s.bandTo !== undefined) {
				bands.push({ series: [i + 1, s.bandTo + 1], fill: colour + "40" });
			}
			values.push(line);
			series.push(seriesOptions(s, colour, show));
		});
		return { values, series, bands };
	}

	plotOptions() {
		const { from, to } = this.data;
		const grid = { stroke: themeColour("--grid"), width: 1 };
		const font = "11px system-ui, sans-serif";
		const axis = { stroke: themeColour("--dim"), grid, ticks: grid, font };
		const steps = this.unit.startsWith("bytes") ? { incrs: byteSteps } : {};
		return {
			legend: { show: false },
			cursor: {
				y: false, points: { show: false }, drag: { x: true, y: false }, sync: { key: "time" },
			},
			scales: {
				x: { time: false, range: (_, min, max) => timeRange(min, max, from, to) },
				y: { range: (_, min, max) => valueRange(min, Math.max(max, this.leastTop ?? max)) },
			},
			axes: [
				{ ...axis, size: 30, values: (_, ticks) => ticks.map(secondsTick) },
				{ ...axis, size: 78, values: (_, ticks) => ticks.map(this.text), ...steps },
			],
			plugins: [marksPlugin(this.marks), pointLabelsPlugin(this.labels)],
			hooks: {
				setCursor: [(u) => this.showValues(u.cursor.idx)],
				ready: [(u) => this.listen(u)],
			},
		};
	}

	/** Calls onPick for clicks, but not for drags, which zoom. */
	listen(u) {
		let downX = 0;
		u.over.addEventListener("mousedown", (e) => { downX = e.clientX; });
		u.over.addEventListener("click", (e) => {
			const isClick = Math.abs(e.clientX - downX) < 4, { idx } = u.cursor;
			if (isClick && idx != null) this.onPick?.(u.data[0][idx]);
		});
	}

	/** Shows the values at a point in the legend, or no values if idx is null or undefined. */
	showValues(idx) {
		this.entries.forEach(({ value }, i) => {
			const v = idx == null ? null : this.merged[i + 1][idx];
			value.textContent = v == null ? "" : this.text(v);
		});
		this.onCursor?.(idx == null ? null : this.merged[0][idx]);
	}

	/** Handles keys: the arrow keys, Home and End move the cursor, Escape resets the zoom. */
	onKey(e) {
		if (e.key === "Escape") {
			this.u.setScale("x", { min: this.data.from, max: this.data.to });
			return;
		}
		const times = this.merged[0], stops = this.stops ?? times;
		const stop = stopAfterKey(e, indexAt(stops, times[this.u.cursor.idx ?? 0]), stops.length - 1);
		if (stop === null) return;
		e.preventDefault();
		this.moveTo(indexAt(times, stops[stop]));
	}

	moveTo(idx) {
		const t = this.merged[0][idx];
		this.u.setCursor({ left: this.u.valToPos(t, "x"), top: 10 }, false);
		this.u.cursor.idx = idx;
		this.showValues(idx);
		this.onPick?.(t);
	}
}

function seriesOptions(series, colour, show) {
	const options = { label: series.name, show, stroke: colour, dash: series.dash };
	if (series.points) {
		const points = { show: true, size: 5, width: 0, fill: colour };
		return { ...options, paths: () => null, points };
	}
	return {
		...options, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false },
		spanGaps: !series.gaps, width: series.stacked || series.bandTo !== undefined ? 0.7 : 1.3,
		fill: series.stacked ? colour + "cc" : undefined,
	};
}

/**
 * Returns the index of the stop to which a key moves the cursor. With Shift, arrow keys move by
 * ten.
 *
 * @param {{key: string, shiftKey: boolean}} event
 * @param {number} stop index of the current stop
 * @param {number} last index of the last stop
 * @returns {?number} null for other keys
 */
export function stopAfterKey({ key, shiftKey }, stop, last) {
	const step = shiftKey ? 10 : 1;
	switch (key) {
	case "ArrowRight": return Math.min(last, stop + step);
	case "ArrowLeft": return Math.max(0, stop - step);
	case "Home": return 0;
	case "End": return last;
	}
	return null;
}
