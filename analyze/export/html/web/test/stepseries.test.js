import assert from "node:assert/strict";
import { test } from "node:test";
import { outlierLabels, stepSeries, stepTexts } from "../src/stepseries.js";

const data = {
	from: 0, to: 9, texts: ["slow kernel", "an operation of gemm ran for 2ms", "", "no call differs", "in a call"],
};

const steps = {
	title: "7 python3", median: 1e6, t: [1, 3], ns: [1e6, 2e6], n: [1, 3],
	outliers: [
		{ t: 2, ns: 5e6, n: 2, c: 0, d: 1 }, { t: 4, ns: 4e6, n: 4, c: 2, d: 3 },
		{ t: 5, ns: 6e6, n: 5, c: 0, d: 1 },
	],
};

test("outliers have a series for each cause", () => {
	const series = stepSeries(data, steps);
	assert.deepEqual(series, [
		{ name: "median", t: [0, 9], v: [1e6, 1e6], colour: "--dim", dash: [6, 4] },
		{ name: "steps", t: [1, 3], v: [1e6, 2e6], colour: "--c0", points: true },
		{ name: "outlier: slow kernel", t: [2, 5], v: [5e6, 6e6], colour: "--c6", points: true },
		{ name: "outlier: unknown cause", t: [4], v: [4e6], colour: "--text", points: true },
	]);
});

test("a cause has the same colour in each process", () => {
	const colours = [0, 4].map((c) => {
		const outliers = [{ t: 2, ns: 5e6, n: 2, c, d: 1 }, { t: 3, ns: 5e6, n: 3, c: 4, d: 1 }];
		const series = stepSeries(data, { ...steps, outliers });
		return series.find((s) => s.name === "outlier: in a call").colour;
	});
	assert.equal(colours[0], colours[1]);
});

test("without outliers there are only steps and their median", () => {
	const series = stepSeries(data, { ...steps, outliers: [] });
	assert.deepEqual(series.map((s) => s.name), ["median", "steps"]);
});

test("the label of an outlier is its cause, and belongs to the series of the cause", () => {
	const series = stepSeries(data, steps);
	const labels = outlierLabels(data, steps, series);
	assert.deepEqual(labels.map((l) => [l.t, l.v, l.text, series[l.series].name]), [
		[2, 5e6, "slow kernel", "outlier: slow kernel"],
		[4, 4e6, "unknown cause", "outlier: unknown cause"],
		[5, 6e6, "slow kernel", "outlier: slow kernel"],
	]);
});

test("each step has a sentence, in order of time", () => {
	const texts = stepTexts(data, steps);
	assert.deepEqual([...texts.keys()], [1, 2, 3, 4, 5]);
	assert.equal(texts.get(3), "Step 3 at 3.00 s: 2.0 ms");
	assert.equal(texts.get(2), "Step 2 at 2.00 s: 5.0 ms, 4.0 ms longer than the median. " +
		"Outlier, slow kernel: an operation of gemm ran for 2ms");
	assert.match(texts.get(4), /Outlier, unknown cause: no call differs$/);
});
