import assert from "node:assert/strict";
import { test } from "node:test";
import { bytesText, countText, nsText, percentText, secondsText, textOfUnit } from "../src/text.js";

/** Checks a function of one argument against a table of [argument, result]. */
function checkTable(f, cases) {
	for (const [argument, want] of cases) assert.equal(f(argument), want, `${f.name}(${argument})`);
}

const unknownCases = [[null, "–"], [undefined, "–"], [NaN, "–"], [Infinity, "–"], [-Infinity, "–"]];

test("bytesText", () => checkTable(bytesText, [
	[0, "0 B"], [1, "1 B"], [512, "512 B"], [1023, "1023 B"], [1024, "1.0 KiB"],
	[-1536, "-1.5 KiB"],
	[2 ** 20 - 1, "1.0 MiB"], [2 ** 20, "1.0 MiB"], [7.1 * 2 ** 30, "7.1 GiB"],
	[2 ** 40, "1.0 TiB"],
	[2 ** 50, "1024.0 TiB"], [Number.MAX_SAFE_INTEGER, "8192.0 TiB"], ...unknownCases,
]));

test("nsText", () => checkTable(nsText, [
	[0, "0 ns"], [1, "1 ns"], [0.25, "0.3 ns"], [-999, "-999 ns"], [999.95, "1.0 µs"],
	[1000, "1.0 µs"],
	[999_949, "999.9 µs"], [999_950, "1.0 ms"], [-1_500_000, "-1.5 ms"], [999_949_999, "999.9 ms"],
	[999_950_000, "1.00 s"], [60e9, "1 min 0 s"], [-2e9, "-2.00 s"], ...unknownCases,
]));

test("secondsText", () => checkTable(secondsText, [
	[0, "0.00 ms"], [0.00001, "0.01 ms"], [0.05, "50.00 ms"], [0.1, "100.0 ms"],
	[0.9999, "999.9 ms"],
	[0.99995, "1.00 s"], [1, "1.00 s"], [59.99, "59.99 s"], [59.995, "1 min 0 s"],
	[60, "1 min 0 s"],
	[119.4, "1 min 59 s"], [119.6, "2 min 0 s"], [3599.4, "59 min 59 s"], [3599.6, "1 h 0 min"],
	[3600, "1 h 0 min"], [7170, "2 h 0 min"], [86_400 * 30, "720 h 0 min"], [-1.5, "-1.50 s"],
	...unknownCases,
]));

test("countText", () => checkTable(countText, [
	[0, "0"], [7, "7"], [0.5, "0.5"], [99.94, "99.9"], [100.4, "100"], [88310, "88,310"],
	[-1234567, "-1,234,567"],
	[1e15, "1,000,000,000,000,000"], ...unknownCases,
]));

test("percentText", () => {
	for (const [part, whole, want] of [
		[1, 4, "25.0"], [0, 4, "0.0"], [5, 4, "125.0"], [0, 0, "–"], [1, 0, "–"], [null, 4, "–"],
		[1, null, "–"], [NaN, 4, "–"],
	]) assert.equal(percentText(part, whole), want, `${part}/${whole}`);
});

test("textOfUnit", () => {
	for (const [unit, value, want] of [
		["bytes", 2048, "2.0 KiB"], ["bytes/s", 2048, "2.0 KiB/s"], ["bytes/s", null, "–"],
		["ns", 1500, "1.5 µs"], ["count", 1500, "1,500"], ["W", 300, "300 W"],
		["%", 12.34, "12.3 %"],
		["W", null, "–"], ["W", NaN, "–"], ["", 3, "3"],
	]) assert.equal(textOfUnit(unit)(value), want, `${value} in ${unit}`);
});
