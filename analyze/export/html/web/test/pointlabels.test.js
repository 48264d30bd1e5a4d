import assert from "node:assert/strict";
import { test } from "node:test";
import { placeLabels } from "../src/pointlabels.js";

const box = (x, y = 0) => ({ x, y, width: 10, height: 5 });
const area = { x: 0, y: 0, width: 100, height: 20 };

test("labels do not overlap earlier labels and obstacles", () => {
	const labels = [[box(20)], [box(25)], [box(30)], [box(25, 5)]];
	assert.deepEqual(placeLabels(labels, [], area), [box(20), null, box(30), box(25, 5)]);
	assert.deepEqual(placeLabels(labels, [box(22)], area), [null, null, null, box(25, 5)]);
});

test("a label without space takes its next box", () => {
	assert.deepEqual(placeLabels([[box(95), box(80)]], [], area), [box(80)]);
	assert.deepEqual(placeLabels([[box(50), box(30)]], [box(55)], area), [box(30)]);
	assert.deepEqual(placeLabels([[box(95), box(-1)], [box(50, 16)]], [], area), [null, null]);
});
