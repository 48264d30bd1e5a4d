import assert from "node:assert/strict";
import { test } from "node:test";
import { busySeries, queueSeries, untilMarks } from "../src/busyseries.js";

const gpu = (changes) => ({
	title: "GPU 0", from: 1, to: 5, lo: [10, null], mid: [20, null], hi: [30, null], q: [0, 2],
	qmax: [0, 40], ...changes,
});

test("the bounds are a band, and the probable share is a line", () => {
	const t = [1, 3, 5, 5 + 1e-5];
	assert.deepEqual(busySeries(gpu({})), [
		{ name: "upper bound", t, v: [30, null, null, null], colour: "--c0", gaps: true, bandTo: 1 },
		{ name: "lower bound", t, v: [10, null, null, null], colour: "--c0", gaps: true, dash: [2, 2] },
		{ name: "probably busy", t, v: [20, null, null, null], colour: "--l0", gaps: true },
	]);
});

test("the last part reaches to the end of the time, and no further", () => {
	const [line] = busySeries(gpu({ hi: [30, 50] }));
	assert.deepEqual(line.v, [30, 50, 50, null]);
	assert.equal(line.t[2], 5);
});

test("without an estimate there are only bounds", () => {
	const names = busySeries(gpu({ mid: [] })).map((s) => s.name);
	assert.deepEqual(names, ["upper bound", "lower bound"]);
});

test("a queue that is always empty has no chart", () => {
	assert.deepEqual(queueSeries(gpu({ qmax: [0, 0.01] })), []);
	const series = queueSeries(gpu({}));
	assert.deepEqual(series.map((s) => [s.name, s.v[1], s.off ?? false]),
		[["median", 2, false], ["most", 40, true]]);
});

test("a mark shows where reading ended", () => {
	assert.deepEqual(untilMarks(gpu({})), []);
	assert.deepEqual(untilMarks(gpu({ until: 0 })), [{ t: 0, text: "read up to here" }]);
});
