import assert from "node:assert/strict";
import { test } from "node:test";
import { memorySeries, stackColour } from "../src/memoryseries.js";

const data = {
	from: 0, to: 10, texts: ["a.py:1", "device", "b.py:2"],
	groups: [{ s: 0, k: 1, f: [] }, { s: 2, k: 1, f: [] }],
};

/** Returns memory of two groups over two moments, changed by the test. */
const memoryWith = (changes) => ({
	t: [0, 5], total: [30, 40], shown: [0, 1], series: [[10, 20], [20, 20]], lines: [], ...changes,
});

const namesOf = (memory) => memorySeries(data, memory).series.map((s) => s.name);

test("each shown group has a stacked series", () => {
	const { series, isEnvelope } = memorySeries(data, memoryWith({}));
	assert.equal(isEnvelope, false);
	assert.deepEqual(series, [
		{ name: "a.py:1", t: [0, 5], v: [10, 20], colour: "--c0", stacked: true },
		{ name: "b.py:2", t: [0, 5], v: [20, 20], colour: "--c1", stacked: true },
	]);
});

test("the rest has a series if there is any", () => {
	assert.deepEqual(namesOf(memoryWith({ total: [30, 41] })), ["a.py:1", "b.py:2", "all other sites"]);
	assert.deepEqual(namesOf(memoryWith({ shown: [], series: [] })), ["all other sites"]);
	assert.deepEqual(namesOf(memoryWith({ t: [], total: [], series: [[], []] })), ["a.py:1", "b.py:2"]);
});

test("memory that swings is drawn by its envelope", () => {
	const indexes = Array.from({ length: 2000 }, (_, i) => i);
	const v = indexes.map((i) => (i % 2 ? 0 : 100));
	const t = indexes.map((i) => 1 + i / 250);
	const memory = memoryWith({ t, total: v, shown: [0], series: [v] });
	const { series, isEnvelope } = memorySeries(data, memory);
	assert.equal(isEnvelope, true);
	assert.deepEqual(series.map((s) => s.name), ["a.py:1", "minimum of each part of the time"]);
	assert.deepEqual(new Set(series[0].v), new Set([0, 100]));
	assert.equal(series[0].v[0], 0, "before the first moment");
	assert.deepEqual(new Set(series[1].v), new Set([0]));
	assert.equal(series[0].t.length, series[0].v.length);
});

test("lines that are details or far above the peak are hidden at first", () => {
	for (const [name, v, off] of [
		["PyTorch reserved", [40], false], ["PyTorch allocated", [40], true],
		["all of GPU 0, by NVML", [40], true],
		["allocated from the driver", [120], false], ["allocated from the driver", [121], true],
		["recorded processes, by NVML", [null], false], ["recorded processes, by NVML", [], false],
	]) {
		const line = memorySeries(data, memoryWith({ lines: [{ name, t: v.map(() => 1), v }] })).series[2];
		assert.equal(line.off, off, `${name} of ${v}`);
		assert.deepEqual(line.dash, name.endsWith("NVML") ? [6, 4] : undefined, name);
	}
});

test("colours repeat", () => {
	assert.deepEqual([0, 8, 9, 10].map(stackColour), ["--c0", "--c8", "--c0", "--c1"]);
});
