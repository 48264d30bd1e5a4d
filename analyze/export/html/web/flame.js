// The flame graph, drawn by d3-flame-graph: root at the top, and usable with the keyboard.
"use strict";

const rowHeight = 18;

function drawFlame(box) {
	const { flame, texts } = page.data;
	if (!flame) return;
	const usable = flame.metrics.map((m, i) => i).filter((i) => flame.root.v[i] > 0);
	if (!usable.length) return;
	const choose = element("select", { id: "flame-metric" }, ...usable.map((i) => element("option", { value: i, text: flame.metrics[i].name })));
	const search = element("input", { type: "search", id: "flame-search", placeholder: "search frames" });
	search.setAttribute("aria-label", "Search frames");
	const reset = element("button", { type: "button", id: "flame-reset", text: "Reset zoom" });
	const status = element("p", { className: "status", id: "flame-status" });
	status.setAttribute("role", "status");
	const place = element("div", { className: "flame" });
	box.append(element("div", { className: "tools" }, element("label", { text: "Width: ", htmlFor: "flame-metric" }), choose, search, reset,
		element("span", { text: "Arrow keys move, Enter zooms, Escape resets." })), place, status);

	let graph, metric = usable[0], text = valueText(flame.metrics[metric].unit);
	const total = () => flame.root.v[metric];
	const tell = (d) => `${d.data.name}: ${text(d.data.value)}, ${(100 * d.data.value / total()).toFixed(1)} %`;

	// tree is the part of the data that the metric knows, as d3-flame-graph wants it.
	const tree = (node) => ({
		name: texts[node.n], kind: node.k, value: node.v[metric],
		children: (node.c || []).filter((c) => c.v[metric] > 0).map(tree).sort((a, b) => b.value - a.value),
	});
	const depth = (node) => 1 + Math.max(0, ...node.children.map(depth));

	const find = (term) => {
		const wanted = term.toLowerCase();
		let hits = 0, sum = 0;
		graph.setSearchMatch((d) => wanted !== "" && d.data.name.toLowerCase().includes(wanted));
		graph.setSearchHandler((results, matched) => { hits = results.length; sum = matched; });
		if (wanted) graph.search(wanted);
		else graph.clear();
		status.textContent = wanted ? `${hits} frames match “${term}”: ${text(sum)}, ${(100 * sum / total()).toFixed(1)} %` : "";
		makeFocusable();
	};

	const frames = () => [...place.querySelectorAll("g.frame")];
	const makeFocusable = (wanted) => {
		const list = frames();
		const current = wanted ?? list.find((g) => g.tabIndex === 0) ?? list[0];
		for (const g of list) {
			g.tabIndex = g === current ? 0 : -1;
			g.setAttribute("role", "button");
			g.setAttribute("aria-label", tell(g.__data__));
		}
	};
	const focus = (d) => {
		const g = frames().find((g) => g.__data__ === d);
		if (!g) return;
		makeFocusable(g);
		g.focus();
		status.textContent = tell(d);
	};

	const draw = () => {
		const data = tree(flame.root);
		place.replaceChildren();
		graph = flamegraph.default().width(Math.max(240, place.clientWidth)).height((depth(data) + 0.1) * rowHeight).cellHeight(rowHeight).inverted(true).transitionDuration(0)
			.minFrameSize(1).setColorMapper((d) => `var(${d.highlight ? "--flame-hit" : ["--flame-native", "--flame-python", "--flame-other"][d.data.kind]})`)
			.setLabelHandler(tell).onClick((d) => { status.textContent = tell(d); makeFocusable(); });
		d3.select(place).datum(data).call(graph);
		const svg = place.firstChild; // on paper it is scaled, not drawn again: d3 needs a frame for that
		svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
		svg.setAttribute("role", "group");
		svg.setAttribute("aria-label", "Flame graph: " + flame.metrics[metric].name);
		makeFocusable();
		if (search.value) find(search.value);
	};

	const visible = (list) => (list || []).filter((d) => d.value > 0);
	place.addEventListener("keydown", (e) => {
		const d = document.activeElement.__data__;
		if (!d) return;
		const row = visible(d.parent?.children).sort((a, b) => a.x0 - b.x0), i = row.indexOf(d);
		const go = { ArrowDown: visible(d.children).sort((a, b) => b.value - a.value)[0], ArrowUp: d.parent, ArrowRight: row[i + 1], ArrowLeft: row[i - 1] };
		if (e.key in go) focus(go[e.key] ?? d);
		else if (e.key === "Enter" || e.key === " ") { graph.zoomTo(d); focus(d); }
		else if (e.key === "Escape") { graph.resetZoom(); focus(d); }
		else return;
		e.preventDefault();
	});
	choose.addEventListener("change", () => {
		metric = Number(choose.value);
		text = valueText(flame.metrics[metric].unit);
		status.textContent = "";
		draw();
	});
	search.addEventListener("input", () => find(search.value.trim()));
	reset.addEventListener("click", () => { search.value = ""; graph.clear(); graph.resetZoom(); makeFocusable(); status.textContent = ""; });
	draw();
	page.charts.push({ draw, screenOnly: true });
}
