import assert from "node:assert/strict";
import { test } from "node:test";
import { groupName, holdersAt, parseReport, bytesOfOtherSites } from "../src/data.js";

const texts = ["train.py:10", "device", "main", "load.py:3", "managed"];
const groups = [{ s: 0, k: 1, f: [0, 2] }, { s: 3, k: 1, f: [] }, { s: 0, k: 4, f: [0] }];

test("parseReport", () => {
	const empty = `{"from":0,"to":5,"texts":null,"memory":[],"groups":[],
		"flame":null,"activity":null,"gpus":null,"marks":null}`;
	assert.deepEqual(parseReport(empty), {
		from: 0, to: 5, texts: [], memory: [], groups: [], busy: [], steps: [], ranks: [], flame: null,
		activity: null, gpus: [], marks: [],
	});
	assert.deepEqual(parseReport("{}"), {
		texts: [], memory: [], groups: [], busy: [], steps: [], ranks: [], gpus: [], marks: [],
	});
	const { busy, steps } = parseReport(`{"busy":[{"mid":null}],"steps":[{"t":null,"ns":[1],"n":null}]}`);
	assert.deepEqual(busy, [{ mid: [] }]);
	assert.deepEqual(steps, [{ t: [], ns: [1], n: [] }]);
	assert.deepEqual(parseReport(`{"marks":[{"t":1,"text":"</script>"}]}`).marks,
		[{ t: 1, text: "</script>" }]);
	for (const bad of ["", "{", `{"from": NaN}`]) assert.throws(() => parseReport(bad), SyntaxError, bad);
});

test("holdersAt", () => {
	const memory = {
		held: [[], [0, 2048, 2], [1, 300, 3, 2, 100, 1]],
		rest: [[0, 0], [0, 0], [50, 7]],
	};
	const of = (k) => holdersAt({ texts, groups }, memory, k);
	assert.deepEqual(of(0), []);
	assert.deepEqual(of(1), [
		{ bytes: 2048, blocks: 2, kind: "device", site: "train.py:10", frames: ["train.py:10", "main"] },
	]);
	assert.deepEqual(of(2), [
		{ bytes: 300, blocks: 3, kind: "device", site: "load.py:3", frames: [] },
		{ bytes: 100, blocks: 1, kind: "managed", site: "train.py:10", frames: ["train.py:10"] },
		{ bytes: 50, blocks: 7, kind: "", site: "all other sites", frames: [] },
	]);
});

test("the rest is listed if it has blocks, also without bytes", () => {
	assert.deepEqual(holdersAt({ texts, groups }, { held: [[]], rest: [[0, 1]] }, 0),
		[{ bytes: 0, blocks: 1, kind: "", site: "all other sites", frames: [] }]);
});

test("groupName adds the kind only to tell groups of one site apart", () => {
	for (const [group, among, want] of [
		[0, [0, 1], "train.py:10"], [0, [0, 1, 2], "train.py:10 · device"],
		[2, [0, 1, 2], "train.py:10 · managed"],
		[1, [0, 1, 2], "load.py:3"], [0, [0], "train.py:10"], [0, [], "train.py:10"],
	]) assert.equal(groupName({ texts, groups }, group, among), want);
});

test("bytesOfOtherSites", () => {
	assert.deepEqual(bytesOfOtherSites({ total: [10, 20, 30], series: [[1, 2, 30], [9, 8, 0]] }), [0, 10, 0]);
	assert.deepEqual(bytesOfOtherSites({ total: [10], series: [] }), [10]);
	assert.deepEqual(bytesOfOtherSites({ total: [], series: [[]] }), []);
});
