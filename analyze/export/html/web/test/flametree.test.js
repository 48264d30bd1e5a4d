import assert from "node:assert/strict";
import { test } from "node:test";
import { depthOf, frameAfterKey, framesOf, isMatch, usableMetrics } from "../src/flametree.js";

const texts = ["all", "main", "train", "load", "idle"];
const root = { n: 0, k: 2, v: [30, 5, 0], c: [
	{ n: 3, k: 0, v: [10, 0, 0] },
	{ n: 1, k: 1, v: [20, 5, 0], c: [{ n: 2, k: 1, v: [20, 5, 0] }, { n: 4, k: 0, v: [0, 0, 0] }] },
] };

test("usableMetrics", () => {
	const metrics = ["live", "count", "time"].map((name) => ({ name, unit: "count" }));
	assert.deepEqual(usableMetrics({ metrics, root }), [0, 1]);
	assert.deepEqual(usableMetrics({ metrics, root: { v: [0, 0, 0] } }), []);
	assert.deepEqual(usableMetrics({ metrics: [], root: { v: [] } }), []);
});

test("framesOf keeps frames with values, the largest first", () => {
	assert.deepEqual(framesOf(root, texts, 0), { name: "all", kind: 2, value: 30, children: [
		{ name: "main", kind: 1, value: 20, children: [{ name: "train", kind: 1, value: 20, children: [] }] },
		{ name: "load", kind: 0, value: 10, children: [] },
	] });
	assert.deepEqual(framesOf(root, texts, 1).children.map((c) => c.name), ["main"]);
	assert.deepEqual(framesOf(root, texts, 2), { name: "all", kind: 2, value: 0, children: [] });
});

test("framesOf leaves the data as it is", () => {
	const before = JSON.stringify(root);
	framesOf(root, texts, 0);
	assert.equal(JSON.stringify(root), before);
});

test("depthOf", () => {
	assert.equal(depthOf({ children: [] }), 1);
	assert.equal(depthOf(framesOf(root, texts, 0)), 3);
	let chain = { children: [] };
	for (let i = 1; i < 500; i++) chain = { children: [chain] };
	assert.equal(depthOf(chain), 500);
});

test("isMatch", () => {
	for (const [name, term, want] of [
		["train_step", "STEP", true], ["Train", "train", true], ["train", "trains", false],
		["train", "", false],
		["", "", false], ["", "x", false], ["f(int*)", "(int*", true], ["a.b", "a?b", false],
	]) assert.equal(isMatch(name, term), want, `${term} in ${name}`);
});

/** Returns a drawn frame with children, as d3-hierarchy links them. */
function drawn(name, value, x0, children) {
	const frame = { name, value, x0, parent: null, children };
	for (const child of children ?? []) child.parent = frame;
	return frame;
}

test("frameAfterKey", () => {
	const small = drawn("small", 1, 0), large = drawn("large", 5, 0.2), hidden = drawn("hidden", 0, 0.1);
	const top = drawn("root", 6, 0, [large, hidden, small]);
	for (const [frame, key, want] of [
		[top, "ArrowDown", large], [top, "ArrowUp", top], [top, "ArrowLeft", top],
		[top, "ArrowRight", top],
		[small, "ArrowUp", top], [small, "ArrowRight", large], [small, "ArrowLeft", small],
		[large, "ArrowLeft", small], [large, "ArrowRight", large], [large, "ArrowDown", large],
		[top, "Enter", null], [top, "a", null], [top, "toString", null],
	]) assert.equal(frameAfterKey(frame, key)?.name, want?.name, `${key} on ${frame.name}`);
});
