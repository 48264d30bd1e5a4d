// Tests HTML reports of gpurec in a headless Chromium: charts, flame graph, tables, theme, keyboard control,
// console errors and network requests.
//
//	node report_viewer.mjs PUPPETEER_DIR CHROMIUM REPORT.html … [--look REPORT.html …]
//	node report_viewer.mjs PUPPETEER_DIR CHROMIUM REPORT.html --shot FILE.png [--width N] [--height N] [--dark] [--at SELECTOR | --only SELECTOR | --full]
//
// The first form prints one JSON object for each page, with counts and a list of problems. The first page also
// gets the tests of theme, keyboard and print. Pages after --look are only checked for drawn charts.
// The second form writes a screenshot.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { resolve, join } from "node:path";

const [tools, chromium, ...rest] = process.argv.slice(2);
const puppeteer = createRequire(join(resolve(tools), "x.js"))("puppeteer-core");
const option = (name) => { const i = rest.indexOf(name); return i < 0 ? undefined : rest[i + 1] ?? true; };

let url, seen, page; // URL, result and browser tab of the page under test
const problem = (...words) => seen.problems.push(words.join(" "));
const check = (ok, ...words) => { if (!ok) problem(...words); return ok; };

const hangMs = 300_000; // a limit only ends a hang: a busy machine is slow
const browser = await puppeteer.launch({ executablePath: chromium, timeout: hangMs, protocolTimeout: hangMs, headless: true, args: ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-extensions"] });

async function open(width, { scripts = true, height = 900 } = {}) {
	const page = await browser.newPage();
	await page.setViewport({ width, height });
	await page.setJavaScriptEnabled(scripts);
	page.on("console", (m) => { if (m.type() === "error" || m.type() === "warn") problem("console:", m.text()); });
	page.on("pageerror", (e) => problem("script error:", e.message));
	page.on("dialog", (d) => { problem("a dialog opened:", d.message()); d.dismiss(); });
	page.on("request", (r) => { if (r.url() !== url && !r.url().startsWith("data:")) problem("network request:", r.url()); });
	await page.goto(url, { waitUntil: "load", timeout: hangMs });
	if (scripts) await page.waitForFunction(() => document.documentElement.dataset.ready, { timeout: hangMs });
	return page;
}

// until waits for a condition in the page, and returns whether it became true.
async function until(is, ...args) {
	return page.waitForFunction(is, { timeout: hangMs, polling: 20 }, ...args).then(() => true, () => false);
}

// isStill tells if d3 moves no frame of a flame graph.
const isStill = () => ![...document.querySelectorAll(".flame *")].some((e) => e.__transition);

if (option("--shot")) {
	seen = { problems: [] };
	url = pathToFileURL(resolve(rest[0])).href;
	const page = await open(Number(option("--width") ?? 1280), { height: Number(option("--height") ?? 900) });
	if (rest.includes("--dark")) await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
	if (option("--at")) await page.$eval(option("--at"), (e) => e.scrollIntoView());
	await page.waitForFunction(isStill);
	// captureBeyondViewport: false keeps the width of the page. Without it, the charts are drawn again.
	const fullPage = rest.includes("--full") ? { fullPage: true, captureBeyondViewport: false } : {};
	await (option("--only") ? await page.$(option("--only")) : page).screenshot({ path: option("--shot"), ...fullPage });
	await browser.close();
	process.exit(0);
}

const looked = rest.indexOf("--look") < 0 ? rest.length : rest.indexOf("--look");
for (const [i, file] of rest.entries()) {
	if (i === looked) continue;
	await tryPage(file, i >= looked ? [charts, flameIsThere] : i > 0 ? [charts, memory, flame, tables, busy, steps] : [charts, memory, flame, tables, theme, keyboard, elsewhere]);
	console.log(JSON.stringify(seen));
}
await browser.close();

async function tryPage(file, parts) {
	seen = { problems: [] };
	url = pathToFileURL(resolve(file)).href;
	page = await open(1280);
	seen.ready_ms = Number(await page.$eval("html", (e) => e.dataset.ready));
	seen.tables = (await page.$$("table.data[id]")).length;
	for (const part of parts) {
		const began = Date.now();
		await part().catch((e) => problem(part.name + ":", e.message));
		if (process.env.VIEWER_TIMES) console.error(part.name, Date.now() - began, "ms");
	}
	await page.close();
}

// charts checks that every panel has content, and that every canvas has more than two colours.
async function charts() {
	await until(() => [...document.querySelectorAll("[data-chart]")].every((box) => box.querySelector("canvas, svg g"))); // d3 draws in a later animation frame
	seen.panels = await page.$$eval("[data-chart]", (boxes) => Object.fromEntries(boxes.map((box) => [box.dataset.chart, box.querySelectorAll("canvas").length + box.querySelectorAll("svg g").length])));
	for (const [name, n] of Object.entries(seen.panels)) check(n > 0, "panel", name, "is empty");
	seen.canvases = await page.$$eval("canvas", (list) => list.map((c) => {
		const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
		const colours = new Set();
		for (let i = 0; i < data.length; i += 4) if (data[i + 3]) colours.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
		return colours.size;
	}));
	seen.canvases.forEach((n, i) => check(n > 2, "canvas", i, "has", n, "colours: nothing is drawn on it"));
	seen.maps = (await page.$$("figure.map svg")).length;
}

// memory clicks into the memory chart, returns to the peak, and hides a series.
async function memory() {
	const over = await page.$("[data-chart=memory] .u-over");
	if (!over) return;
	const title = () => page.$eval("[data-chart=memory] .detail h3", (e) => e.textContent);
	seen.peak = await title();
	check(/peak/.test(seen.peak), "the memory panel does not start at the peak:", seen.peak);
	await over.evaluate((e) => e.scrollIntoView({ block: "center" }));
	const box = await over.boundingBox();
	await page.mouse.click(box.x + box.width / 3, box.y + box.height / 2);
	seen.clicked = await title();
	check(seen.clicked !== seen.peak, "after a click into the chart the memory panel still shows the peak");
	check(/: 0 B/.test(seen.clicked) || (await page.$$("[data-chart=memory] .detail tbody tr")).length > 0, "the memory panel lists no holders for the clicked time");
	await page.click("[data-chart=memory] .tools button");
	check((await title()) === seen.peak, "the button does not return to the peak");
	const pressed = await page.$eval("[data-chart=memory] .legend button", (e) => { e.click(); const is = e.getAttribute("aria-pressed"); e.click(); return is; });
	check(pressed === "false", "a series cannot be hidden");
}

// busy moves through a chart of the busy time by keys.
async function busy() {
	const plot = await page.$("[data-chart=busy] .plot");
	if (!plot) return;
	await plot.focus();
	for (const key of ["Home", "ArrowRight", "ArrowRight"]) await page.keyboard.press(key);
	seen.busy = await page.$eval("[data-chart=busy] .legend", (e) => e.textContent);
	check(/upper bound[\d.]+ %lower bound[\d.]+ %probably busy[\d.]+ %/.test(seen.busy), "the keys show no busy share:", seen.busy);
}

// steps moves through a chart of steps by keys and by mouse, and hides an outlier if there is one.
async function steps() {
	if (!(await page.$("[data-chart=steps] .plot"))) return;
	const panel = await page.evaluateHandle(() => {
		const all = [...document.querySelectorAll("[data-chart=steps] .plotbox")];
		return all.find((e) => e.querySelector("[title^=outlier]")) ?? all[0];
	});
	const status = () => panel.$eval(".status", (e) => e.textContent);
	const isStep = (text) => /^Step \d+ at /.test(text);
	const hint = await status(), plot = await panel.$(".plot"), outlier = await panel.$("[title^=outlier]");
	await plot.focus();
	await page.keyboard.press("Home");
	seen.step = await status();
	check(isStep(seen.step), "the Home key does not show the first step:", seen.step);
	await page.keyboard.press("ArrowRight");
	const second = await status();
	check(isStep(second) && second !== seen.step, "the arrow key does not show the next step:", second);
	if (outlier) {
		for (let i = 0; i < 200 && !/Outlier/.test(await status()); i++) await page.keyboard.press("ArrowRight");
		seen.outlier = await status();
		check(/longer than the median\. Outlier, .*: ./.test(seen.outlier), "the keys do not reach an outlier:", seen.outlier);
		const picture = () => panel.$eval("canvas", (c) => c.toDataURL());
		const before = await picture();
		await outlier.evaluate((e) => e.click());
		check((await picture()) !== before, "an outlier cannot be hidden");
		await outlier.evaluate((e) => e.click());
	}
	await plot.evaluate((e) => e.scrollIntoView({ block: "center" }));
	const box = await (await panel.$(".u-over")).boundingBox();
	await page.mouse.move(box.x + box.width / 3, box.y + box.height / 2);
	check(isStep(await status()), "the mouse shows no step:", await status());
	await page.mouse.move(2, 2);
	check((await status()) === hint, "without the mouse a step is still shown:", await status());
}

async function flameIsThere() {
	seen.frames = (await page.$$(".flame g.frame")).length;
	if (await page.$("[data-chart=flame]")) check(seen.frames > 1, "the flame graph has", seen.frames, "frames");
}

// flame zooms into a frame and out again, searches for a frame, and selects every metric.
async function flame() {
	await flameIsThere();
	if (!(await page.$("[data-chart=flame]"))) return;
	check(await until(isStill), "the frames keep changing");
	await page.evaluate(() => { window.frameNamed = (name) => [...document.querySelectorAll(".flame g.frame")].find((g) => g.__data__.data.name === name); });
	const frames = await page.$$eval(".flame g.frame", (list) => list.map((g) => ({ name: g.__data__.data.name, depth: g.__data__.depth, width: g.querySelector("rect").getBoundingClientRect().width })));
	const part = frames.filter((f) => f.depth > 0).sort((a, b) => a.width - b.width).find((f) => f.width > 4);
	const wide = (name, width) => Math.abs(window.frameNamed(name)?.querySelector("rect").getBoundingClientRect().width - width) < 3;
	await page.evaluate((name) => window.frameNamed(name).dispatchEvent(new MouseEvent("click", { bubbles: true })), part.name);
	check(await until(wide, part.name, frames[0].width), "a click does not zoom to", part.name);
	await page.$eval("#flame-reset", (e) => e.click());
	check(await until(wide, part.name, part.width), "the zoom is not undone");
	await page.type("#flame-search", part.name.slice(0, 12));
	check(await until((name) => window.frameNamed(name)?.querySelector("rect").getAttribute("fill") === "var(--flame-hit)", part.name), "the search does not mark", part.name);
	seen.search = await page.$eval("#flame-status", (e) => e.textContent);
	check(/match/.test(seen.search), "the search does not show the number of matches:", seen.search);
	await page.$eval("#flame-reset", (e) => e.click());
	const options = await page.$$eval("#flame-metric option", (list) => list.map((o) => o.value));
	for (const value of [...options.slice(1), options[0]]) {
		await page.select("#flame-metric", value);
		check(await until(() => document.querySelectorAll(".flame g.frame").length > 0), "nothing is drawn for", value);
	}
}

// tables sorts every table by every column, and filters the tables that have a filter.
async function tables() {
	const columns = await page.$$eval("table th", (list) => list.filter((th) => th.scope !== "col").length);
	check(columns === 0, columns, "headings have no scope");
	seen.problems.push(...await page.evaluate(() => [...document.querySelectorAll("table.data[id]")].filter((t) => t.getClientRects().length).flatMap((table) => {
		const wrong = [], id = table.id;
		const heads = [...table.tHead.rows[0].cells];
		const values = (i) => [...table.tBodies[0].rows].map((r) => r.cells[i].dataset.v).filter((v) => v !== "").map(Number);
		heads.forEach((th, i) => {
			for (const want of th.classList.contains("n") ? ["descending", "ascending"] : ["ascending", "descending"]) {
				th.querySelector("button").click();
				if (th.getAttribute("aria-sort") !== want) wrong.push(`${id}: ${th.textContent} is not sorted ${want}`);
				if (!th.classList.contains("n")) continue;
				const v = values(i), sign = want === "ascending" ? 1 : -1;
				if (v.some((x, k) => k > 0 && (x - v[k - 1]) * sign < 0)) wrong.push(`${id}: ${th.textContent} is not in ${want} order`);
			}
			if (heads.filter((h) => h.hasAttribute("aria-sort")).length !== 1) wrong.push(`${id}: not exactly one column is marked as sorted`);
		});
		return wrong;
	})));
	const filters = [];
	for (const input of await page.$$("input[aria-controls]")) if (await input.isVisible()) filters.push(input);
	seen.filters = filters.length;
	for (const input of filters) {
		const id = await input.evaluate((e) => e.getAttribute("aria-controls"));
		const rows = () => page.$$eval(`[id="${id}"] tbody tr`, (list) => list.filter((r) => !r.hidden).map((r) => r.textContent.toLowerCase()));
		const fill = (text) => input.evaluate((e, text) => { e.value = text; e.dispatchEvent(new Event("input")); }, text);
		const before = await rows();
		const word = await page.$eval(`[id="${id}"] tbody tr:last-child td:last-child`, (e) => e.textContent.trim().split(/\s+/)[0].toLowerCase());
		await (input === filters[0] ? input.type(word) : fill(word)); // the first filter gets real key presses
		const after = await rows();
		check(after.length > 0 && after.every((text) => text.includes(word)), "the filter of", id, "shows other rows than those with", word);
		await fill("");
		check((await rows()).length === before.length, "the filter of", id, "keeps rows hidden after it is cleared");
	}
}

// theme clicks through the themes, and changes the theme of the system.
async function theme() {
	const state = () => page.evaluate(() => [document.getElementById("theme").textContent, getComputedStyle(document.body).backgroundColor]);
	const states = [await state()];
	for (let i = 0; i < 3; i++) {
		await page.$eval("#theme", (e) => e.click());
		states.push(await state());
	}
	check(states[3].join() === states[0].join(), "three clicks do not return to the theme of the system");
	check(new Set(states.map((s) => s[1])).size === 2, "dark and light look the same");
	await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
	check(await until((light) => getComputedStyle(document.body).backgroundColor !== light, states[0][1]), "the page does not follow a dark system theme");
	await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
	check(await until((light) => getComputedStyle(document.body).backgroundColor === light, states[0][1]), "the page does not follow the change back to a light system theme");
}

// keyboard moves through the page with Tab: every stop must have a name, a visible focus, and its place in
// the order of the page. It also tests the keys of the memory chart and of the flame graph.
async function keyboard() {
	await page.close();
	page = await open(1280); // a new tab, in which no element has the focus
	const stops = [];
	for (let i = 0; i < 60; i++) {
		await page.keyboard.press("Tab");
		stops.push(await page.evaluate(() => {
			const e = document.activeElement, last = window.lastStop;
			window.lastStop = e;
			const label = document.getElementById(e.getAttribute("aria-labelledby"));
			return { what: e.tagName.toLowerCase() + (e.id ? "#" + e.id : ""), name: (e.getAttribute("aria-label") || label?.textContent || e.textContent || e.labels?.[0]?.textContent || "").trim(),
				forward: !last || last === e || Boolean(last.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING), outline: getComputedStyle(e).outlineStyle };
		}));
		if (stops.at(-1).what === "body") break;
	}
	seen.stops = stops.length;
	check(stops[0].what === "a" && /skip/i.test(stops[0].name), "the first stop is no link to the verdicts but", stops[0].what);
	check(stops[1].what === "button#theme", "the second stop is", stops[1].what);
	for (const s of stops.filter((s) => s.what !== "body")) {
		check(s.name, s.what, "has no name");
		check(s.forward, s.what, s.name, "is not in the order of the page");
		check(s.outline !== "none" || s.what === "g", s.what, s.name, "has no visible focus");
	}
	if (await page.$("[data-chart=memory] .plot")) {
		await page.focus("[data-chart=memory] .plot");
		await page.keyboard.press("Home");
		const first = await page.$eval("[data-chart=memory] .detail h3", (e) => e.textContent);
		for (let i = 0; i < 3; i++) await page.keyboard.press("ArrowRight");
		const then = await page.$eval("[data-chart=memory] .detail h3", (e) => e.textContent);
		check(first !== then, "the arrow keys do not move in the chart of memory");
	}
	if (await page.$(".flame g.frame")) {
		await page.$eval(".flame g.frame", (g) => g.focus());
		const depth = () => page.evaluate(() => document.activeElement.__data__?.depth);
		await page.keyboard.press("ArrowDown");
		check((await depth()) === 1, "the down key does not go to the next frame");
		await page.keyboard.press("Enter");
		check(await until(() => document.activeElement.querySelector("rect")?.getBoundingClientRect().width > document.querySelector(".flame svg").getBoundingClientRect().width - 3), "Enter does not zoom");
		await page.keyboard.press("Escape");
	}
}

// elsewhere tests the page on a narrow screen, in print and without scripts.
async function elsewhere() {
	const narrow = await open(390);
	const [width, inner] = await narrow.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
	const wide = await narrow.$$eval("body *", (list) => list.filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll")).map((e) => e.tagName + "." + e.className).slice(0, 3));
	check(width <= inner, "the page is", width, "wide on a screen of", inner, "because of", wide.join(", "));
	await narrow.close();
	const paper = await page.pdf({ format: "A4" });
	seen.pdf_bytes = paper.length;
	check(paper.length > 20000, "the print has", paper.length, "bytes");
	const plain = await open(1280, { scripts: false });
	const text = await plain.evaluate(() => document.body.innerText);
	check(/Scripts are off/.test(text), "without scripts the page lacks the banner about scripts");
	check(text.includes("Verdicts") && text.includes("Quality"), "without scripts there are no verdicts");
	seen.plain_rows = (await plain.$$("table tbody tr")).length;
	check(seen.plain_rows > 0, "without scripts there are no tables");
	await plain.close();
}
