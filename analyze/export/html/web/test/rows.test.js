import assert from "node:assert/strict";
import { test } from "node:test";
import { foldedRows, keyOf, nextOrder, shownRows, sortedRows, wordsOf } from "../src/rows.js";

test("keyOf", () => {
	for (const [value, text, want] of [
		["12", "12 B", 12], ["-0.5", "", -0.5], ["1e300", "", 1e300], ["0", "–", 0],
		["", "–", null], [" ", "–", null],
		["NaN", "–", null], ["x", "–", null], [undefined, "  Main\n", "main"], [undefined, "", ""],
	]) assert.equal(keyOf(value, text), want, `${value}, ${text}`);
});

test("nextOrder", () => {
	for (const [current, isNumber, want] of [
		[null, true, "descending"], ["descending", true, "ascending"],
		["ascending", true, "descending"],
		[null, false, "ascending"], ["ascending", false, "descending"],
		["descending", false, "ascending"],
	]) assert.equal(nextOrder(current, isNumber), want, `${current}, ${isNumber}`);
});

test("sortedRows", () => {
	for (const [keys, order, want] of [
		[[], "ascending", []], [[7], "descending", [0]],
		[[10, 9, 100], "ascending", [1, 0, 2]], [[10, 9, 100], "descending", [2, 0, 1]],
		[[null, 1, null, -2], "ascending", [3, 1, 0, 2]],
		[[null, 1, null, -2], "descending", [1, 3, 0, 2]],
		[[5, 5, 1, 5], "descending", [0, 1, 3, 2]], [["b", "a", ""], "ascending", [2, 1, 0]],
		[[Number.MAX_VALUE, -Number.MAX_VALUE, 0], "ascending", [1, 2, 0]],
		[[0, -0], "descending", [0, 1]],
	]) assert.deepEqual(sortedRows(keys, order), want, `${keys} ${order}`);
});

test("wordsOf", () => {
	assert.deepEqual(wordsOf("  Foo\tBAR "), ["foo", "bar"]);
	assert.deepEqual(wordsOf(""), []);
	assert.deepEqual(wordsOf(" \n"), []);
});

test("a filter shows the rows with all words", () => {
	const texts = ["main train", "main load", "idle"], positions = [2, 1, 0];
	for (const [words, want] of [
		[["main"], [true, true, false]], [["load", "main"], [false, true, false]],
		[["absent"], [false, false, false]],
	]) {
		assert.deepEqual(shownRows(texts, positions, words, true), want, words.join());
		assert.deepEqual(shownRows(texts, positions, words, false), want, words.join());
	}
	assert.deepEqual(shownRows([], [], ["main"], true), []);
});

test("a folded table shows the first rows of its order", () => {
	const texts = Array.from({ length: foldedRows + 5 }, (_, i) => `row ${i}`);
	const reversed = texts.map((_, i) => texts.length - 1 - i);
	assert.deepEqual(shownRows(texts, reversed, [], true), texts.map((_, i) => i >= 5));
	assert.deepEqual(shownRows(texts, reversed, [], false), texts.map(() => true));
	assert.equal(shownRows(texts, reversed, ["row"], true).filter(Boolean).length, texts.length);
});
