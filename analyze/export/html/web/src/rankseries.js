// The series of the chart of ranks.

/** Colours of late ranks and of other ranks: names of CSS variables. */
const lateColours = ["--c3", "--c1", "--c6", "--c5"];
const otherColours = ["--c0", "--c2", "--c4", "--c8", "--c7"];

/**
 * Returns the series of the chart of ranks. Late ranks have other colours, and their names say it.
 *
 * @param {import("./data.js").Rank[]} ranks the late ranks first
 * @returns {import("./chart.js").Series[]}
 */
export function rankSeries(ranks) {
	const lateRanks = ranks.filter(({ late }) => late).length;
	return ranks.map(({ name, late, t, v }, i) => {
		const colours = late ? lateColours : otherColours;
		const place = late ? i : i - lateRanks;
		return { name: late ? `${name}, late` : name, t, v, colour: colours[place % colours.length] };
	});
}
