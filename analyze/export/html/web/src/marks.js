// Marks: events that all charts show as a vertical line with a label.
import { themeColour } from "./dom.js";

/**
 * Returns the marks within a time range, both ends included.
 *
 * @param {import("./data.js").Mark[]} marks
 * @param {number} fromS seconds
 * @param {number} toS seconds
 * @returns {import("./data.js").Mark[]}
 */
export const marksWithin = (marks, fromS, toS) => marks.filter((m) => m.t >= fromS && m.t <= toS);

/**
 * Reports for each label whether it is drawn: it must not overlap the last drawn label on its left,
 * and must end inside the plot.
 *
 * @param {{x: number, width: number}[]} labels from left to right, in pixels
 * @param {number} right edge of the plot, in pixels
 * @param {number} gap smallest distance between two labels, in pixels
 * @returns {boolean[]}
 */
export function labelsThatFit(labels, right, gap) {
	let free = -Infinity;
	return labels.map(({ x, width }) => {
		const fits = x > free && x + width < right;
		if (fits) free = x + width + gap;
		return fits;
	});
}

/**
 * Returns a uPlot plugin that draws marks.
 *
 * @param {import("./data.js").Mark[]} marks
 * @returns {object}
 */
export function marksPlugin(marks) {
	return { hooks: { draw: [(u) => drawMarks(u, marks)] } };
}

function drawMarks(u, marks) {
	const { ctx, bbox } = u, ratio = devicePixelRatio;
	const shown = marksWithin(marks, u.scales.x.min, u.scales.x.max);
	ctx.save();
	ctx.setLineDash([]);
	ctx.textAlign = "left";
	ctx.textBaseline = "top";
	ctx.strokeStyle = ctx.fillStyle = themeColour("--mark");
	ctx.lineWidth = ratio;
	ctx.font = `${10 * ratio}px sans-serif`;
	const labels = shown.map((mark) => ({
		x: Math.round(u.valToPos(mark.t, "x", true)), width: ctx.measureText(mark.text).width,
	}));
	const fits = labelsThatFit(labels, bbox.left + bbox.width, 8 * ratio);
	shown.forEach((mark, i) => {
		drawLine(ctx, labels[i].x, bbox);
		if (fits[i]) ctx.fillText(mark.text, labels[i].x + 3 * ratio, bbox.top + 2 * ratio);
	});
	ctx.restore();
}

function drawLine(ctx, x, bbox) {
	ctx.globalAlpha = 0.45;
	ctx.beginPath();
	ctx.moveTo(x, bbox.top);
	ctx.lineTo(x, bbox.top + bbox.height);
	ctx.stroke();
	ctx.globalAlpha = 1;
}
