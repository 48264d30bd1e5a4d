// Numbers as text with readable units.

/** The text of an unknown value: null, undefined, NaN or infinite. */
export const unknown = "–";

/**
 * @param {?number} n
 * @returns {boolean} whether n is a finite number
 */
export const isKnown = (n) => Number.isFinite(n);

const byteUnits = ["B", "KiB", "MiB", "GiB", "TiB"];

/**
 * Returns bytes in the largest unit in which they are at least 1: 512 B, 1.5 KiB.
 *
 * @param {?number} n bytes, of any sign
 * @returns {string}
 */
export function bytesText(n) {
	if (!isKnown(n)) return unknown;
	const sign = n < 0 ? "-" : "";
	let size = Math.abs(n), unit = 0;
	// Use the next unit from 1023.95 on, because toFixed(1) would round to 1024.0.
	for (; size >= 1023.95 && unit < byteUnits.length - 1; unit++) size /= 1024;
	return `${sign}${size.toFixed(unit === 0 ? 0 : 1)} ${byteUnits[unit]}`;
}

/**
 * Returns a duration in ns, µs or ms; from 1 s on the text of secondsText.
 *
 * @param {?number} n nanoseconds, of any sign
 * @returns {string}
 */
export function nsText(n) {
	if (!isKnown(n)) return unknown;
	const size = Math.abs(n);
	if (size < 999.95) return `${Number(n.toFixed(1))} ns`;
	if (size < 999.95e3) return `${(n / 1e3).toFixed(1)} µs`;
	if (size < 999.95e6) return `${(n / 1e6).toFixed(1)} ms`;
	return secondsText(n / 1e9);
}

/**
 * Returns a duration in ms, s, minutes and seconds, or hours and minutes.
 *
 * @param {?number} s seconds, of any sign
 * @returns {string}
 */
export function secondsText(s) {
	if (!isKnown(s)) return unknown;
	if (s < 0) return "-" + secondsText(-s);
	if (s < 0.99995) return `${(s * 1000).toFixed(s < 0.1 ? 2 : 1)} ms`;
	if (s < 59.995) return `${s.toFixed(2)} s`;
	const seconds = Math.round(s), minutes = Math.round(s / 60);
	if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
	return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/**
 * Returns a number with thousands separators. Numbers below 100 keep one decimal place.
 *
 * @param {?number} n
 * @returns {string}
 */
export function countText(n) {
	if (!isKnown(n)) return unknown;
	if (Math.abs(n) < 100 && !Number.isInteger(n)) return n.toFixed(1);
	return Math.round(n).toLocaleString("en-US");
}

/**
 * Returns part/whole in percent with one decimal place, without the percent sign. It returns
 * unknown if whole is 0.
 *
 * @param {?number} part
 * @param {?number} whole
 * @returns {string}
 */
export function percentText(part, whole) {
	const percent = (100 * part) / whole;
	return isKnown(part) && isKnown(percent) ? percent.toFixed(1) : unknown;
}

/**
 * Returns the function that formats values of a unit.
 *
 * @param {string} unit "bytes", "bytes/s", "ns", "count", any other name, or "" for none
 * @returns {function(?number): string}
 */
export function textOfUnit(unit) {
	switch (unit) {
	case "bytes": return bytesText;
	case "bytes/s": return (n) => withSuffix(bytesText(n), "/s");
	case "ns": return nsText;
	case "count": return countText;
	}
	return (n) => withSuffix(countText(n), unit ? " " + unit : "");
}

const withSuffix = (text, suffix) => (text === unknown ? text : text + suffix);
