import assert from "node:assert/strict";
import { test } from "node:test";
import { rankSeries } from "../src/rankseries.js";

const rank = (n, late) => ({ name: `rank ${n}`, late, t: [1, 2], v: [5e6, -1e6] });

test("late ranks have colours and names of their own", () => {
	assert.deepEqual(rankSeries([rank(2, true), rank(0, false), rank(1, false)]), [
		{ name: "rank 2, late", t: [1, 2], v: [5e6, -1e6], colour: "--c3" },
		{ name: "rank 0", t: [1, 2], v: [5e6, -1e6], colour: "--c0" },
		{ name: "rank 1", t: [1, 2], v: [5e6, -1e6], colour: "--c2" },
	]);
});

test("colours repeat if there are many ranks", () => {
	const series = rankSeries(Array.from({ length: 8 }, (_, i) => rank(i, false)));
	assert.equal(series.length, 8);
	assert.ok(series.every(({ colour }) => /^--c\d$/.test(colour)));
});
