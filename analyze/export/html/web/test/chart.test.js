import assert from "node:assert/strict";
import { test } from "node:test";
import { stopAfterKey } from "../src/chart.js";
import { labelsThatFit, marksWithin } from "../src/marks.js";

test("stopAfterKey", () => {
	for (const [key, shiftKey, stop, want] of [
		["ArrowRight", false, 3, 4], ["ArrowRight", false, 20, 20], ["ArrowRight", true, 3, 13],
		["ArrowRight", true, 15, 20],
		["ArrowLeft", false, 3, 2], ["ArrowLeft", false, 0, 0], ["ArrowLeft", true, 3, 0],
		["ArrowLeft", true, 13, 3],
		["Home", false, 7, 0], ["End", false, 7, 20], ["Enter", false, 7, null],
		["Tab", true, 7, null],
	]) assert.equal(stopAfterKey({ key, shiftKey }, stop, 20), want, `${key} at ${stop}`);
});

test("a chart of one point has one stop", () => {
	for (const key of ["ArrowRight", "ArrowLeft", "Home", "End"]) {
		assert.equal(stopAfterKey({ key, shiftKey: false }, 0, 0), 0, key);
	}
});

test("marksWithin", () => {
	const marks = [1, 2, 3].map((t) => ({ t, text: "" }));
	assert.deepEqual(marksWithin(marks, 1, 2).map((m) => m.t), [1, 2]);
	assert.deepEqual(marksWithin(marks, 4, 9), []);
	assert.deepEqual(marksWithin([], 0, 9), []);
});

test("labelsThatFit", () => {
	for (const [labels, want] of [
		[[], []], [[[0, 50]], [true]], [[[60, 50]], [false]], [[[0, 20], [10, 20]], [true, false]],
		[[[0, 20], [25, 5], [29, 5]], [true, false, true]], [[[0, 200], [10, 20]], [false, true]],
		[[[0, 20], [0, 20]], [true, false]],
	]) {
		const fits = labelsThatFit(labels.map(([x, width]) => ({ x, width })), 100, 8);
		assert.deepEqual(fits, want, JSON.stringify(labels));
	}
});
