// Functions on the tree of the flame graph: selection of a metric, search, and keyboard navigation.

/**
 * @typedef {object} Frame a frame as d3-flame-graph draws it
 * @property {string} name
 * @property {number} kind 0 native, 1 Python, 2 other
 * @property {number} value
 * @property {Frame[]} children the largest first
 */

/**
 * Returns the indexes of the metrics whose total is above 0.
 *
 * @param {import("./data.js").Flame} flame
 * @returns {number[]}
 */
export function usableMetrics(flame) {
	return flame.metrics.map((_, i) => i).filter((i) => flame.root.v[i] > 0);
}

/**
 * Returns the tree of one metric. Frames without a value of the metric are left out.
 *
 * @param {import("./data.js").FlameNode} node
 * @param {string[]} texts
 * @param {number} metric index of the metric
 * @returns {Frame}
 */
export function framesOf(node, texts, metric) {
	const callees = (node.c ?? []).filter((c) => c.v[metric] > 0);
	const children = callees.map((c) => framesOf(c, texts, metric));
	children.sort((a, b) => b.value - a.value);
	return { name: texts[node.n], kind: node.k, value: node.v[metric], children };
}

/**
 * Returns the number of levels of a tree, 1 for a frame without children.
 *
 * @param {Frame} frame
 * @returns {number}
 */
export function depthOf(frame) {
	return 1 + frame.children.reduce((most, child) => Math.max(most, depthOf(child)), 0);
}

/**
 * Reports whether a name contains a search term. Case does not matter. An empty term matches no
 * name.
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
 * @property {number} value 0 if the frame is outside of the zoomed part
 * @property {number} x0 left edge
 * @property {?DrawnFrame} parent
 * @property {DrawnFrame[]} [children]
 */

/**
 * Returns the frame to which an arrow key moves the focus: the caller, the largest callee or a
 * neighbour. If there is none, it returns the frame itself.
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
