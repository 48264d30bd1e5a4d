import assert from "node:assert/strict";
import { test } from "node:test";
import { byteSteps, secondsTick, timeRange, valueRange } from "../src/scales.js";
import { bytesText } from "../src/text.js";

test("byte steps are whole in the unit of their label", () => {
	assert.deepEqual(byteSteps.slice(0, 3), [1, 2, 4]);
	for (const step of byteSteps) assert.match(bytesText(step), /^\d+(\.0)? \w+$/, String(step));
});

test("timeRange", () => {
	for (const [min, max, want] of [
		[2, 3, [2, 3]], [3, 3, [0, 10]], [4, 3, [0, 10]], [null, null, [0, 10]],
		[undefined, undefined, [0, 10]], [NaN, NaN, [0, 10]],
	]) assert.deepEqual(timeRange(min, max, 0, 10), want, `${min} to ${max}`);
});

test("valueRange contains 0 and has room at its top", () => {
	for (const [min, max, want] of [
		[0, 100, [0, 106]], [50, 100, [0, 106]], [-5, 100, [-5, 106]], [-5, -2, [-5, 1]],
		[0, 0, [0, 1]],
		[null, null, [0, 1]], [undefined, undefined, [0, 1]], [NaN, NaN, [0, 1]],
		[-Infinity, Infinity, [0, 1]],
	]) assert.deepEqual(valueRange(min, max), want, `${min} to ${max}`);
});

test("secondsTick", () => {
	for (const [s, want] of [
		[0, "0 s"], [10, "10 s"], [0.1 + 0.2, "0.3 s"], [0.0000014, "0.000001 s"], [-1, "-1 s"],
		[1e6, "1000000 s"],
	]) assert.equal(secondsTick(s), want);
});
