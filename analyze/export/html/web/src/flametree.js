// The tree of the flame graph: what is drawn of it, searched in it, and where keys lead.

/**
 * @typedef {object} Frame a frame as d3-flame-graph draws it
 * @property {string} name
 * @property {number} kind 0 native, 1 Python, 2 other
 * @property {number} value
 * @property {Frame[]} children the largest first
 */

/**
 * Returns the indexes of the metrics that have any value.
 *
 * @param {import("./data.js").Flame} flame
 * @returns {number[]}
 */
export function usableMetrics(flame) {
	return flame.metrics.map((_, i) => i).filter((i) => flame.root.v[i] > 0);
}

/**
 * Returns the part of a tree that has values of a metric.
 *
 * @param {import("./data.js").FlameNode} node
 * @param {string[]} texts
 * @param {number} metric index
 * @returns {Frame}
 */
export function framesOf(node, texts, metric) {
	const callees = (node.c ?? []).filter((c) => c.v[metric] > 0);
	const children = callees.map((c) => framesOf(c, texts, metric));
	children.sort((a, b) => b.value - a.value);
	return { name: texts[node.n], kind: node.k, value: node.v[metric], children };
}

/**
 * Returns the rows that a tree takes: 1 for a frame without children.
 *
 * @param {Frame} frame
 * @returns {number}
 */
export function depthOf(frame) {
	return 1 + frame.children.reduce((most, child) => Math.max(most, depthOf(child)), 0);
}

/**
 * Reports whether a search finds a name. Case does not matter; an empty search finds nothing.
 *
 * @param {string} name
 * @param {string} term
 * @returns {boolean}
 */
export function isMatch(name, term) {
	return term !== "" && name.toLowerCase().includes(term.toLowerCase());
}

/**
 * @typedef {object} DrawnFrame a node of d3-hierarchy
 * @property {number} value 0 if the frame is zoomed away
 * @property {number} x0 left edge
 * @property {?DrawnFrame} parent
 * @property {DrawnFrame[]} [children]
 */

/**
 * Returns the frame that an arrow key leads to: the caller, the largest callee or a neighbour.
 * At an edge it is the frame itself.
 *
 * @param {DrawnFrame} frame
 * @param {string} key
 * @returns {?DrawnFrame} null for other keys
 */
export function frameAfterKey(frame, key) {
	const step = (by) => {
		const row = visible(frame.parent?.children).sort((a, b) => a.x0 - b.x0);
		return row[row.indexOf(frame) + by] ?? frame;
	};
	switch (key) {
	case "ArrowDown": return visible(frame.children).sort((a, b) => b.value - a.value)[0] ?? frame;
	case "ArrowUp": return frame.parent ?? frame;
	case "ArrowRight": return step(1);
	case "ArrowLeft": return step(-1);
	}
	return null;
}

const visible = (frames) => (frames ?? []).filter((frame) => frame.value > 0);
