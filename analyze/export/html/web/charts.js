// Charts over time, drawn by uPlot. Values hold until the next point: memory does not rise between
// two calls, so lines are steps.
"use strict";

const page = { data: null, charts: [] };

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function element(tag, attributes = {}, ...children) {
	const e = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes)) {
		if (name === "text") e.textContent = value;
		else if (name in e && name !== "list") e[name] = value;
		else e.setAttribute(name, value);
	}
	e.append(...children);
	return e;
}

function bytesText(n) {
	if (n == null) return "–";
	const sign = n < 0 ? "-" : "";
	let v = Math.abs(n);
	for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
		if (v < 1023.95 || unit === "TiB") return sign + (unit === "B" ? v.toFixed(0) : v.toFixed(1)) + " " + unit;
		v /= 1024;
	}
}

function nsText(n) {
	const v = Math.abs(n);
	if (v < 1e3) return n + " ns";
	if (v < 1e6) return (n / 1e3).toFixed(1) + " µs";
	if (v < 1e9) return (n / 1e6).toFixed(1) + " ms";
	return secondsText(n / 1e9);
}

function secondsText(s) {
	if (s < 1) return (s * 1000).toFixed(s < 0.1 ? 2 : 1) + " ms";
	if (s < 60) return s.toFixed(2) + " s";
	const m = Math.floor(s / 60);
	return m < 60 ? `${m} min ${(s % 60).toFixed(0)} s` : `${Math.floor(m / 60)} h ${m % 60} min`;
}

const countText = (n) => (n == null ? "–" : Math.abs(n) < 100 && n % 1 ? n.toFixed(1) : Math.round(n).toLocaleString("en-US"));

function valueText(unit) {
	switch (unit) {
	case "bytes": return bytesText;
	case "bytes/s": return (v) => (v == null ? "–" : bytesText(v) + "/s");
	case "ns": return nsText;
	case "count": return countText;
	}
	return (v) => (v == null ? "–" : countText(v) + (unit ? " " + unit : ""));
}

// Ticks of bytes are at powers of two, so that they are whole.
const byteSteps = Array.from({ length: 51 }, (_, i) => 2 ** i);

// merged puts lines with times of their own on one axis; a line holds its value until its next point.
function merged(lines, from, to) {
	const times = [...new Set([from, to, ...lines.flatMap((l) => l.t)])].sort((a, b) => a - b);
	return [times, ...lines.map((l) => {
		let i = -1;
		return times.map((t) => {
			while (i + 1 < l.t.length && l.t[i + 1] <= t) i++;
			return i < 0 ? null : l.v[i];
		});
	})];
}

function marksPlugin() {
	return { hooks: { draw: [(u) => {
		const { ctx, bbox } = u;
		ctx.save();
		ctx.setLineDash([]);
		ctx.textAlign = "left";
		ctx.textBaseline = "top";
		ctx.strokeStyle = css("--mark");
		ctx.fillStyle = css("--mark");
		ctx.lineWidth = devicePixelRatio;
		ctx.font = `${10 * devicePixelRatio}px sans-serif`;
		let free = -Infinity; // where the last text ends
		for (const mark of page.data.marks || []) {
			if (mark.t < u.scales.x.min || mark.t > u.scales.x.max) continue;
			const x = Math.round(u.valToPos(mark.t, "x", true));
			ctx.globalAlpha = 0.45;
			ctx.beginPath();
			ctx.moveTo(x, bbox.top);
			ctx.lineTo(x, bbox.top + bbox.height);
			ctx.stroke();
			ctx.globalAlpha = 1;
			const width = ctx.measureText(mark.text).width;
			if (x > free && x + width < bbox.left + bbox.width) {
				ctx.fillText(mark.text, x + 3 * devicePixelRatio, bbox.top + 2 * devicePixelRatio);
				free = x + width + 8 * devicePixelRatio;
			}
		}
		ctx.restore();
	}] } };
}

// Chart is a plot with a legend of buttons that show and hide its series. series: {name, t, v,
// colour, stacked}; stacked ones lie on each other, in order.
class Chart {
	constructor(parent, { title, unit, height, series, from, to, onPick, stops }) {
		Object.assign(this, { title, unit, height, series, from, to, onPick, stops });
		this.text = valueText(unit);
		this.hidden = new Set(series.flatMap((s, i) => (s.off ? [i] : [])));
		this.plot = element("div", { className: "plot", tabIndex: 0, role: "img" });
		this.plot.setAttribute("aria-label", `${title}: ${this.describe()}`);
		this.legend = element("ul", { className: "legend" });
		parent.append(this.plot, this.legend);
		this.makeLegend();
		this.plot.addEventListener("keydown", (e) => this.key(e));
		this.draw();
		page.charts.push(this);
	}

	describe() {
		return this.series.map((s) => {
			const known = s.v.filter((v) => v != null);
			return known.length ? `${s.name} from ${this.text(Math.min(...known))} to ${this.text(Math.max(...known))}` : s.name;
		}).join("; ");
	}

	makeLegend() {
		this.values = this.series.map((s, i) => {
			const swatch = element("span", { className: s.stacked ? "swatch" : "swatch stroke" });
			const value = element("span", { className: "value" });
			const button = element("button", { type: "button", title: s.name }, swatch, element("span", { className: "name", text: s.name }), value);
			button.setAttribute("aria-pressed", String(!this.hidden.has(i)));
			button.addEventListener("click", () => {
				if (!this.hidden.delete(i)) this.hidden.add(i);
				button.setAttribute("aria-pressed", String(!this.hidden.has(i)));
				this.draw();
			});
			this.legend.append(element("li", {}, button));
			s.swatch = swatch;
			return value;
		});
	}

	draw() {
		const width = Math.max(240, this.plot.clientWidth);
		const selected = this.u?.cursor.idx;
		this.u?.destroy();
		this.raw = merged(this.series, this.from, this.to);
		const data = [this.raw[0]], options = [{}], bands = [];
		let below = null, last = -1;
		this.series.forEach((s, i) => {
			const colour = css(s.colour), show = !this.hidden.has(i);
			s.swatch.style.background = colour;
			let values = this.raw[i + 1];
			if (s.stacked && show) {
				values = values.map((v, k) => (v ?? 0) + (below ? below[k] : 0));
				below = values;
				if (last >= 0) bands.push({ series: [i + 1, last + 1] });
				last = i;
			}
			data.push(values);
			options.push({ label: s.name, show, stroke: colour, width: s.stacked ? 0.7 : 1.3, dash: s.dash, fill: s.stacked ? colour + "cc" : undefined,
				paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, spanGaps: true });
		});
		const axis = { stroke: css("--dim"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--grid"), width: 1 }, font: "11px system-ui, sans-serif" };
		const isBytes = this.unit.startsWith("bytes");
		this.u = new uPlot({
			width, height: this.height, bands,
			legend: { show: false },
			cursor: { y: false, points: { show: false }, drag: { x: true, y: false }, sync: { key: "time" } },
			scales: { x: { time: false, range: (_, min, max) => (max > min ? [min, max] : [this.from, this.to]) }, y: { range: (_, min, max) => [Math.min(0, min ?? 0), max > 0 ? max * 1.06 : 1] } },
			axes: [
				{ ...axis, size: 30, values: (_, ticks) => ticks.map((v) => `${+v.toFixed(6)} s`) },
				{ ...axis, size: 78, values: (_, ticks) => ticks.map(this.text), ...(isBytes ? { incrs: byteSteps } : {}) },
			],
			series: options,
			plugins: [marksPlugin()],
			hooks: { setCursor: [(u) => this.showValues(u.cursor.idx)], ready: [(u) => this.listen(u)] },
		}, data, this.plot);
		this.showValues(selected);
	}

	listen(u) {
		let down = 0;
		u.over.addEventListener("mousedown", (e) => { down = e.clientX; });
		u.over.addEventListener("click", (e) => {
			if (Math.abs(e.clientX - down) < 4 && u.cursor.idx != null) this.onPick?.(u.data[0][u.cursor.idx]);
		});
	}

	showValues(idx) {
		this.values.forEach((value, i) => {
			const v = idx == null ? null : this.raw[i + 1][idx];
			value.textContent = v == null ? "" : this.text(v);
		});
	}

	// The arrow keys move the cursor from point to point, of stops if there are some; what is there is
	// told below the chart.
	key(e) {
		const times = this.raw[0], stops = this.stops ?? times, last = stops.length - 1;
		let stop = atTime(stops, times[this.u.cursor.idx ?? 0]);
		switch (e.key) {
		case "ArrowRight": stop += e.shiftKey ? 10 : 1; break;
		case "ArrowLeft": stop -= e.shiftKey ? 10 : 1; break;
		case "Home": stop = 0; break;
		case "End": stop = last; break;
		case "Escape": this.u.setScale("x", { min: this.from, max: this.to }); return;
		default: return;
		}
		e.preventDefault();
		stop = Math.max(0, Math.min(last, stop));
		const idx = atTime(times, stops[stop]);
		this.u.setCursor({ left: this.u.valToPos(times[idx], "x"), top: 10 }, false);
		this.u.cursor.idx = idx;
		this.showValues(idx);
		this.onPick?.(times[idx]);
	}
}

const stackColours = 9, lineColours = 5;

function drawMemory(box) {
	const { memory, texts, from, to } = page.data;
	if (!memory.length) return;
	const tools = element("div", { className: "tools" });
	const place = element("div");
	const detail = element("div", { className: "detail" });
	detail.setAttribute("role", "status");
	const show = (m) => {
		const { top, least } = envelope(m, from, to), peak = Math.max(...m.total);
		const stack = (v) => top ? { t: top.t, v: top.at.map((k) => (k < 0 ? 0 : v[k])) } : { t: m.t, v };
		const rest = m.total.map((total, k) => total - m.series.reduce((sum, s) => sum + s[k], 0));
		const series = m.shown.map((g, i) => ({ name: groupText(g, m.shown), ...stack(m.series[i]), colour: `--c${i % stackColours}`, stacked: true }));
		if (rest.some((v) => v > 0)) series.push({ name: "all other places", ...stack(rest), colour: "--rest", stacked: true });
		if (top) series.push({ name: "least in each part of the time", t: top.t, v: least, colour: "--text", dash: [2, 3] });
		// What is far above would press what calls explain to the ground; its button brings it back.
		m.lines.forEach((l, i) => series.push({ ...l, colour: `--l${i % lineColours}`, dash: l.name.endsWith("NVML") ? [6, 4] : undefined,
			off: l.name === "PyTorch allocated" || l.name.startsWith("all of") || Math.max(...l.v) > farAbove * peak }));
		place.replaceChildren();
		if (top) place.append(element("p", { className: "about", text: "Memory swings too fast to be drawn: areas are the most of each part of the time, the dotted line is the least." }));
		page.charts = page.charts.filter((c) => c.title !== "Memory over time");
		new Chart(place, { title: "Memory over time", unit: "bytes", height: 320, series, from, to, stops: m.t, onPick: (t) => tell(m, atTime(m.t, t)) });
		tell(m, m.peak);
	};
	const tell = (m, k) => {
		const held = m.held[k], [bytes, blocks] = m.rest[k];
		const rows = [];
		const row = (bytes, blocks, kind, site, frames) => {
			const label = frames.length ? element("details", {}, element("summary", { text: site }), element("ol", { className: "stack" }, ...frames.map((f) => element("li", { text: texts[f] })))) : site;
			rows.push(element("tr", {}, element("td", { className: "n", text: bytesText(bytes) }), element("td", { className: "n", text: m.total[k] ? (100 * bytes / m.total[k]).toFixed(1) : "–" }),
				element("td", { className: "n", text: countText(blocks) }), element("td", { text: kind }), element("td", { className: "label" }, label)));
		};
		for (let i = 0; i < held.length; i += 3) {
			const group = page.data.groups[held[i]];
			row(held[i + 1], held[i + 2], texts[group.k], texts[group.s], group.f);
		}
		if (blocks > 0) row(bytes, blocks, "", "all other places", []);
		const head = ["Held", "Share%", "Count", "Kind", "Site"].map((text, i) => element("th", { scope: "col", className: i < 3 ? "n" : "", text }));
		detail.replaceChildren(
			element("h3", { text: `Held at ${secondsText(m.t[k])}${k === m.peak ? ", the peak" : ""}: ${bytesText(m.total[k])}, ${m.title}` }),
			element("div", { className: "scroll" }, element("table", { className: "data" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows))));
	};
	if (memory.length > 1) {
		const choose = element("select", { id: "device" }, ...memory.map((m, i) => element("option", { value: i, text: m.title })));
		choose.addEventListener("change", () => show(memory[choose.value]));
		tools.append(element("label", { text: "Memory of ", htmlFor: "device" }), choose);
	}
	const current = () => memory[document.getElementById("device")?.value ?? 0];
	const peak = element("button", { type: "button", text: "Who held it at the peak" });
	const end = element("button", { type: "button", text: "… at the end" });
	peak.addEventListener("click", () => tell(current(), current().peak));
	end.addEventListener("click", () => tell(current(), current().t.length - 1));
	tools.append(peak, end, element("span", { text: "Drag to zoom, double-click to see all; arrow keys move from point to point." }));
	box.append(tools, place, detail);
	show(memory[0]);
}

// farAbove is from how many times the peak on a line is not drawn at first.
const farAbove = 3;

// envelope has, where memory swings all the time, a moment with most and the least of every 200th part of the time: drawn
// as they are, they would be a comb. Of the moment it is told which one it is; -1 is before the first.
function envelope(m, from, to) {
	const parts = 200, top = { t: [], at: [] }, least = [];
	let k = -1, swings = 0;
	for (let part = 0; part < parts; part++) {
		const end = from + (to - from) * (part + 1) / parts;
		let high = k, low = k;
		const total = (i) => (i < 0 ? 0 : m.total[i]);
		for (; k + 1 < m.t.length && (m.t[k + 1] < end || part === parts - 1); ) {
			k++;
			if (total(k) > total(high)) high = k;
			if (total(k) < total(low)) low = k;
		}
		top.t.push(from + (to - from) * part / parts);
		top.at.push(high);
		least.push(total(low));
		if (total(low) < 0.8 * total(high)) swings++;
	}
	return swings > parts / 4 ? { top, least } : {};
}

// groupText is a place; with the kind of memory where others of the list have the same place.
const groupText = (g, among) => {
	const { groups, texts } = page.data, { s, k } = groups[g];
	return among.some((other) => other !== g && groups[other].s === s) ? `${texts[s]} · ${texts[k]}` : texts[s];
};

// atTime is the last moment until t.
function atTime(times, t) {
	let k = 0;
	while (k + 1 < times.length && times[k + 1] <= t + 1e-9) k++;
	return k;
}

function drawActivity(box) {
	const { activity, from, to } = page.data;
	if (!activity) return;
	const series = activity.lines.map((l, i) => ({ ...l, t: activity.t, colour: `--c${i}`, stacked: true }));
	new Chart(box, { title: "Calls a second", unit: "count", height: 180, series, from, to });
}

function drawGPUs(box) {
	const { gpus, from, to } = page.data;
	for (const gpu of gpus || []) {
		const grid = element("div", { className: "gpus" });
		box.append(element("h3", { text: gpu.title }), grid);
		for (const c of gpu.charts) {
			const cell = element("div", { className: "plotbox" }, element("h4", { text: c.title }));
			grid.append(cell);
			new Chart(cell, { title: `${gpu.title}, ${c.title}`, unit: c.unit, height: 150, from, to, series: c.lines.map((l, i) => ({ ...l, colour: `--c${i % stackColours}` })) });
		}
	}
}
