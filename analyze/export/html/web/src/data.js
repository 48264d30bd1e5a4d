// The data of the page's charts, as Go writes it into the page. Times are seconds since the start
// of the recording. Texts are indexes into texts.

/**
 * @typedef {object} ReportData
 * @property {number} from start of the window, in seconds
 * @property {number} to end of the window, in seconds
 * @property {string[]} texts
 * @property {Memory[]} memory one per device, and one for the host; the largest first
 * @property {Group[]} groups
 * @property {?Flame} flame
 * @property {?{t: number[], lines: {name: string, v: ?number[]}[]}} activity calls a second
 * @property {{title: string, charts: MetricChart[]}[]} gpus
 * @property {Mark[]} marks by time
 *
 * @typedef {object} Memory the memory of a device over time; lists have an entry per moment
 * @property {string} title
 * @property {number[]} t the moments
 * @property {number[]} total live bytes
 * @property {number[]} shown the groups with a series of their own
 * @property {number[][]} series for each of shown, its live bytes
 * @property {number[][]} held group, bytes and blocks of the largest holders, one after the other
 * @property {[number, number][]} rest bytes and blocks of all other holders
 * @property {number} peak index of the moment with most bytes
 * @property {Line[]} lines other totals, in bytes
 *
 * @typedef {object} Group an allocation site and a kind of memory
 * @property {number} s text of the site
 * @property {number} k text of the kind
 * @property {number[]} f texts of the frames, leaf first
 *
 * @typedef {object} Line
 * @property {string} name
 * @property {number[]} t
 * @property {?number[]} v
 *
 * @typedef {{title: string, unit: string, lines: Line[]}} MetricChart
 * @typedef {{t: number, text: string}} Mark an event that all charts show
 * @typedef {{metrics: {name: string, unit: string}[], root: FlameNode}} Flame
 *
 * @typedef {object} FlameNode
 * @property {number} n text of the name
 * @property {number} k 0 native, 1 Python, 2 other
 * @property {number[]} v a value per metric
 * @property {FlameNode[]} [c] callees
 */

/**
 * Decodes the page's data. Lists that Go writes as null are empty.
 *
 * @param {string} text JSON
 * @returns {ReportData}
 * @throws {SyntaxError} if the text is not JSON
 */
export function parseReport(text) {
	const data = JSON.parse(text);
	for (const list of ["texts", "memory", "groups", "gpus", "marks"]) data[list] ??= [];
	return data;
}

/**
 * @typedef {object} Holder
 * @property {number} bytes live bytes
 * @property {number} blocks live allocations
 * @property {string} kind kind of memory; "" for the rest
 * @property {string} site
 * @property {string[]} frames leaf first
 */

/** The name of all holders that are not listed. */
export const restName = "all other places";

/**
 * Returns who held memory at a moment: the largest holders, then all others as one.
 *
 * @param {ReportData} data
 * @param {Memory} memory
 * @param {number} k index of the moment
 * @returns {Holder[]}
 */
export function holdersAt(data, memory, k) {
	const held = memory.held[k], [bytes, blocks] = memory.rest[k], holders = [];
	for (let i = 0; i < held.length; i += 3) {
		const group = data.groups[held[i]];
		holders.push({
			bytes: held[i + 1], blocks: held[i + 2], kind: data.texts[group.k],
			site: data.texts[group.s], frames: group.f.map((f) => data.texts[f]),
		});
	}
	if (blocks > 0) holders.push({ bytes, blocks, kind: "", site: restName, frames: [] });
	return holders;
}

/**
 * Returns the name of a group: its site, with the kind of memory if another group has that site.
 *
 * @param {ReportData} data
 * @param {number} group
 * @param {number[]} among the groups that are shown together
 * @returns {string}
 */
export function groupName({ groups, texts }, group, among) {
	const { s, k } = groups[group];
	const isShared = among.some((other) => other !== group && groups[other].s === s);
	return isShared ? `${texts[s]} · ${texts[k]}` : texts[s];
}

/**
 * Returns the bytes that no shown group has, at each moment.
 *
 * @param {Memory} memory
 * @returns {number[]}
 */
export function restBytes(memory) {
	return memory.total.map((total, k) => total - memory.series.reduce((sum, s) => sum + s[k], 0));
}
