// The data of all charts: the JSON of chartData in data.go. Times are seconds since the start of
// the recording. Names of sites, kinds and frames are indexes into texts.

/**
 * @typedef {object} ReportData
 * @property {number} from start of the window, in seconds
 * @property {number} to end of the window, in seconds
 * @property {string[]} texts
 * @property {Memory[]} memory one per device, and one for the host; the largest first
 * @property {Group[]} groups
 * @property {?Flame} flame
 * @property {?{t: number[], lines: {name: string, v: ?number[]}[]}} activity calls per second
 * @property {Busy[]} busy one per GPU and process with GPU times
 * @property {Steps[]} steps one per process with steps; that with the most steps first
 * @property {Rank[]} ranks the late ranks first
 * @property {{title: string, charts: MetricChart[]}[]} gpus
 * @property {Mark[]} marks in order of time
 *
 * @typedef {object} Memory the memory of a device over time; each list has one entry per moment
 * @property {string} title
 * @property {number[]} t times of the moments
 * @property {number[]} total live bytes
 * @property {number[]} shown the groups with a series of their own
 * @property {number[][]} series for each of shown, its live bytes
 * @property {number[][]} held the largest holders: group, bytes and blocks of the first holder,
 *     then of the second, and so on
 * @property {[number, number][]} rest bytes and blocks of all other holders
 * @property {number} peak index of the moment with most bytes
 * @property {Line[]} lines other totals, in bytes
 *
 * @typedef {object} Group an allocation site and a kind of memory
 * @property {number} s index of the site in texts
 * @property {number} k index of the kind of memory in texts
 * @property {number[]} f indexes of the frames in texts, leaf first
 *
 * @typedef {object} Line a value over time: v[i] holds from t[i] on
 * @property {string} name
 * @property {number[]} t
 * @property {?number[]} v
 *
 * @typedef {object} Busy the busy time of a GPU by a process, in equal parts of the time between its
 *     first and its last operation; each list has one entry per part, null where nothing is known
 * @property {string} title
 * @property {number} from start of the first part
 * @property {number} to end of the last part
 * @property {?number[]} lo lower bound of the busy share, in percent
 * @property {?number[]} mid probable busy share; empty if only bounds are known
 * @property {?number[]} hi upper bound of the busy share
 * @property {?number[]} q median number of operations in the queue
 * @property {?number[]} qmax largest number of operations in the queue
 * @property {number} [until] end of the part of the recording that was read
 *
 * @typedef {object} Steps the steps of a process; t, ns and n have one entry for each shown step that
 *     is no outlier
 * @property {string} title
 * @property {number} median median duration of the complete steps, in ns
 * @property {number[]} t begins
 * @property {number[]} ns durations
 * @property {number[]} n numbers of the steps, from 1
 * @property {{t: number, ns: number, n: number, c: number, d: number}[]} outliers begin, duration and
 *     number; indexes of the cause and of what differed in texts
 *
 * @typedef {object} Rank the lateness of a rank over time: that of the steps from t[i] on is v[i]
 * @property {string} name
 * @property {boolean} late the other ranks wait for it
 * @property {number[]} t
 * @property {number[]} v own time less that of the other ranks, in ns
 *
 * @typedef {{title: string, unit: string, lines: Line[]}} MetricChart
 * @typedef {{t: number, text: string}} Mark an event that all charts show as a vertical line
 * @typedef {{metrics: {name: string, unit: string}[], root: FlameNode}} Flame
 *
 * @typedef {object} FlameNode
 * @property {number} n index of the name in texts
 * @property {number} k 0 native, 1 Python, 2 other
 * @property {number[]} v a value per metric
 * @property {FlameNode[]} [c] callees
 */

const lists = ["texts", "memory", "groups", "busy", "steps", "ranks", "gpus", "marks"];

/**
 * Decodes the data of the page. Lists that are null in the JSON become empty.
 *
 * @param {string} text JSON
 * @returns {ReportData}
 * @throws {SyntaxError} if the text is not JSON
 */
export function parseReport(text) {
	const data = JSON.parse(text);
	for (const list of lists) data[list] ??= [];
	for (const gpu of data.busy) gpu.mid ??= [];
	for (const steps of data.steps) for (const list of ["t", "ns", "n"]) steps[list] ??= [];
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

/** The name of the sum of all holders that are not listed. */
export const otherSitesName = "all other sites";

/**
 * Returns the holders of memory at a moment: the largest ones, then one entry for all others.
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
	if (blocks > 0) holders.push({ bytes, blocks, kind: "", site: otherSitesName, frames: [] });
	return holders;
}

/**
 * Returns the name of a group: its site. If another shown group has the same site, the name
 * includes the kind of memory.
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
 * Returns, for each moment, the live bytes of the groups that are not shown.
 *
 * @param {Memory} memory
 * @returns {number[]}
 */
export function bytesOfOtherSites(memory) {
	return memory.total.map((total, k) => total - memory.series.reduce((sum, s) => sum + s[k], 0));
}
