import assert from "node:assert/strict";
import { test } from "node:test";
import { envelope, envelopeParts, extent, indexAt, mergeLines, stackValues } from "../src/series.js";

test("indexAt", () => {
	const times = [1, 2, 2, 5];
	for (const [t, want] of [
		[0, 0], [1, 0], [1.5, 0], [2, 2], [4.999, 2], [5 - 1e-10, 3], [5, 3], [1e9, 3],
	]) assert.equal(indexAt(times, t), want, `at ${t}`);
	assert.equal(indexAt([], 1), 0);
	assert.equal(indexAt([7], 9), 0);
	assert.equal(indexAt(times, NaN), 0);
});

test("indexAt finds each of many times", () => {
	const times = Array.from({ length: 1001 }, (_, i) => i / 10);
	times.forEach((t, i) => assert.equal(indexAt(times, t + 0.05), i));
});

test("mergeLines", async (t) => {
	for (const { name, lines, want } of [
		{ name: "no lines", lines: [], want: [[0, 10]] },
		{ name: "a line without points", lines: [{ t: [], v: [] }], want: [[0, 10], [null, null]] },
		{
			name: "values hold until the next point", lines: [{ t: [2, 4], v: [20, 40] }],
			want: [[0, 2, 4, 10], [null, 20, 40, 40]],
		},
		{
			name: "two lines", lines: [{ t: [0, 5], v: [1, 2] }, { t: [5, 10], v: [null, 4] }],
			want: [[0, 5, 10], [1, 2, 2], [null, null, 4]],
		},
		{
			name: "the last of two values at a time", lines: [{ t: [1, 1], v: [3, 4] }],
			want: [[0, 1, 10], [null, 4, 4]],
		},
		{
			name: "times sort as numbers", lines: [{ t: [9], v: [1] }],
			want: [[0, 9, 10], [null, 1, 1]],
		},
	]) await t.test(name, () => assert.deepEqual(mergeLines(lines, 0, 10), want));

	await t.test("a window without duration", () => {
		assert.deepEqual(mergeLines([{ t: [3], v: [1] }], 3, 3), [[3], [1]]);
	});
});

test("stackValues", () => {
	assert.deepEqual(stackValues([1, null, 3], null), [1, 0, 3]);
	assert.deepEqual(stackValues([1, null, 3], [10, 20, 30]), [11, 20, 33]);
	assert.deepEqual(stackValues([undefined], [5]), [5]);
	assert.deepEqual(stackValues([], []), []);
});

test("extent", () => {
	assert.deepEqual(extent([3, null, -1, NaN, Infinity, 2]), { min: -1, max: 3 });
	assert.deepEqual(extent([5]), { min: 5, max: 5 });
	assert.equal(extent([]), null);
	assert.equal(extent([null, NaN]), null);
	assert.deepEqual(extent(Array.from({ length: 1e6 }, (_, i) => i)), { min: 0, max: 999_999 });
});

/** Returns memory with a moment every 10 ms. */
function memoryOf(length, total) {
	const indexes = Array.from({ length }, (_, i) => i);
	return { t: indexes.map((i) => i / 100), total: indexes.map(total) };
}

test("memory that rises has no envelope", () => {
	assert.equal(envelope(memoryOf(4000, (i) => i), 0, 40), null);
	assert.equal(envelope(memoryOf(4000, () => 5), 0, 40), null);
	assert.equal(envelope(memoryOf(1, () => 5), 0, 40), null);
	assert.equal(envelope({ t: [], total: [] }, 0, 40), null);
	assert.equal(envelope({ t: [1, 1], total: [0, 9] }, 1, 1), null);
});

test("the envelope of memory that swings has the most and the least of each part", () => {
	const memory = memoryOf(4000, (i) => (i % 2 ? i + 5000 : i));
	const { t, at, least } = envelope(memory, 0, 40);
	assert.equal(t.length, envelopeParts);
	const moments = memory.total.length / envelopeParts;
	for (let part = 0; part < envelopeParts; part++) {
		const first = part * moments; // memory holds its value from before the part
		const totals = memory.total.slice(Math.max(0, first - 1), first + moments);
		assert.equal(t[part], (40 * part) / envelopeParts);
		assert.equal(memory.total[at[part]], Math.max(...totals), `most of part ${part}`);
		assert.equal(least[part], part === 0 ? 0 : Math.min(...totals), `least of part ${part}`);
	}
});

test("an envelope needs swings in more than a quarter of the window", () => {
	const swinging = (until) => memoryOf(4000, (i) => (i < until && i % 2 ? 1 : 100));
	assert.equal(envelope(swinging(900), 0, 40), null);
	assert.notEqual(envelope(swinging(1200), 0, 40), null);
});

test("the last part has the moment at the end of the window", () => {
	const memory = memoryOf(4001, (i) => (i === 4000 ? 1000 : (i % 2) * 9));
	assert.equal(envelope(memory, 0, 40).at[envelopeParts - 1], 4000);
});

test("parts before the first moment have nothing", () => {
	const { t, total } = memoryOf(4000, (i) => (i % 2) * 9);
	const { at, least } = envelope({ t: t.map((s) => s + 10), total }, 0, 50);
	assert.equal(at[0], -1);
	assert.equal(least[0], 0);
});

test("points have values at their own times only", () => {
	const lines = [{ t: [2, 4], v: [7, 8], points: true }, { t: [3], v: [1] }];
	assert.deepEqual(mergeLines(lines, 0, 5), [
		[0, 2, 3, 4, 5], [null, 7, null, 8, null], [null, null, 1, 1, 1],
	]);
});
