// Texts next to points of a chart.

/**
 * @typedef {object} PointLabel
 * @property {number} t seconds
 * @property {number} v value of the point
 * @property {string} text
 * @property {number} series index of the point's series; the label is hidden with it
 *
 * @typedef {{x: number, y: number, width: number, height: number}} Box in pixels; x and y are its
 *     left and its top
 */

/**
 * Returns the place of each label: the first of its boxes that is inside of the area and overlaps
 * neither an obstacle nor an earlier label. It is null if there is none.
 *
 * @param {Box[][]} labels the boxes to choose from, of the most important label first
 * @param {Box[]} obstacles
 * @param {Box} area
 * @returns {?Box[]}
 */
export function placeLabels(labels, obstacles, area) {
	const taken = [...obstacles];
	return labels.map((boxes) => {
		const isFree = (box) => contains(area, box) && !taken.some((other) => overlap(box, other));
		const box = boxes.find(isFree) ?? null;
		if (box) taken.push(box);
		return box;
	});
}

const contains = (a, b) => b.x >= a.x && b.y >= a.y && b.x + b.width <= a.x + a.width &&
	b.y + b.height <= a.y + a.height;

const overlap = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height &&
	b.y < a.y + a.height;

/**
 * Returns a uPlot plugin that draws the labels that fit, those of the highest points first.
 *
 * @param {PointLabel[]} labels
 * @returns {object}
 */
export function pointLabelsPlugin(labels) {
	const highestFirst = [...labels].sort((a, b) => b.v - a.v);
	return { hooks: { draw: [(u) => drawLabels(u, highestFirst)] } };
}

function drawLabels(u, labels) {
	const { ctx, bbox } = u, ratio = devicePixelRatio;
	const shown = labels.filter((label) => u.series[label.series + 1].show);
	if (shown.length === 0) return;
	ctx.save();
	ctx.textAlign = "left";
	ctx.textBaseline = "top";
	ctx.font = `${10 * ratio}px sans-serif`;
	const height = 12 * ratio, away = 5 * ratio;
	const boxes = shown.map(({ t, v, text }) => {
		const x = u.valToPos(t, "x", true), y = u.valToPos(v, "y", true) - height / 2;
		const { width } = ctx.measureText(text);
		return [{ x: x + away, y, width, height }, { x: x - away - width, y, width, height }];
	});
	const area = { x: bbox.left, y: bbox.top, width: bbox.width, height: bbox.height };
	const places = placeLabels(boxes, pointBoxes(u, 2 * ratio), area);
	shown.forEach(({ text, series }, i) => {
		ctx.fillStyle = u.series[series + 1].stroke();
		if (places[i]) ctx.fillText(text, places[i].x, places[i].y);
	});
	ctx.restore();
}

/** Returns a box around each point of the shown series. */
function pointBoxes(u, radius) {
	return u.series.flatMap((series, i) => {
		if (i === 0 || !series.show || !series.points.show()) return [];
		return u.data[i].flatMap((v, k) => (v == null ? [] : [{
			x: u.valToPos(u.data[0][k], "x", true) - radius, y: u.valToPos(v, "y", true) - radius,
			width: 2 * radius, height: 2 * radius,
		}]));
	});
}
