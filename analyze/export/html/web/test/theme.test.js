import assert from "node:assert/strict";
import { test } from "node:test";
import { isDark, nextTheme } from "../src/theme.js";

test("three clicks come back to the theme of the system", () => {
	assert.deepEqual(["auto", "light", "dark"].map(nextTheme), ["light", "dark", "auto"]);
});

test("isDark", () => {
	for (const [theme, isSystemDark, want] of [
		["auto", true, true], ["auto", false, false], ["light", true, false], ["dark", false, true],
	]) {
		assert.equal(isDark(theme, isSystemDark, false), want, `${theme}, ${isSystemDark}`);
		assert.equal(isDark(theme, isSystemDark, true), false, `${theme} on paper`);
	}
});
