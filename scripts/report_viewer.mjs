// Opens a report of gpurec in headless Chromium and tries everything in it: whether charts are drawn,
// flame graph, tables, theme and keyboard work, whether it stays quiet and asks no network.
//
//	node report_viewer.mjs PUPPETEER_DIR CHROMIUM REPORT.html
//	node report_viewer.mjs PUPPETEER_DIR CHROMIUM REPORT.html --shot FILE.png [--width N] [--dark] [--at SELECTOR | --only SELECTOR | --full]
//
// The first form prints one JSON object: what was seen, and problems, a list of sentences.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { resolve, join } from "node:path";

const [tools, chromium, file, ...rest] = process.argv.slice(2);
const puppeteer = createRequire(join(resolve(tools), "x.js"))("puppeteer-core");
const url = pathToFileURL(resolve(file)).href;
const option = (name) => { const i = rest.indexOf(name); return i < 0 ? undefined : rest[i + 1] ?? true; };

const seen = { problems: [] };
const problem = (...words) => seen.problems.push(words.join(" "));
const check = (ok, ...words) => { if (!ok) problem(...words); return ok; };
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

const browser = await puppeteer.launch({ executablePath: chromium, headless: true, args: ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"] });

async function open(width, scripts = true) {
	const page = await browser.newPage();
	await page.setViewport({ width, height: 900 });
	await page.setJavaScriptEnabled(scripts);
	page.on("console", (m) => { if (m.type() === "error" || m.type() === "warn") problem("console:", m.text()); });
	page.on("pageerror", (e) => problem("script error:", e.message));
	page.on("dialog", (d) => { problem("a dialog opened:", d.message()); d.dismiss(); });
	page.on("request", (r) => { if (r.url() !== url && !r.url().startsWith("data:")) problem("asked for", r.url()); });
	await page.goto(url, { waitUntil: "load" });
	if (scripts) await page.waitForFunction(() => document.documentElement.dataset.ready, { timeout: 20000 });
	return page;
}

if (option("--shot")) {
	const page = await open(Number(option("--width") ?? 1280));
	if (rest.includes("--dark")) await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
	if (option("--at")) await page.$eval(option("--at"), (e) => e.scrollIntoView());
	await pause(300);
	await (option("--only") ? await page.$(option("--only")) : page).screenshot({ path: option("--shot"), fullPage: rest.includes("--full") || undefined });
	await browser.close();
	process.exit(0);
}

const page = await open(1280);
seen.ready_ms = Number(await page.$eval("html", (e) => e.dataset.ready));
await pause(200); // d3 draws in the next frame

for (const part of [charts, memory, flame, tables, theme, keyboard, elsewhere]) {
	await part().catch((e) => problem(part.name + ":", e.message));
}
await browser.close();
console.log(JSON.stringify(seen));

// charts looks at every canvas: is there anything on it?
async function charts() {
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

// memory clicks into the chart, and asks for the peak.
async function memory() {
	const over = await page.$("[data-chart=memory] .u-over");
	if (!over) return;
	const title = () => page.$eval("[data-chart=memory] .detail h3", (e) => e.textContent);
	seen.peak = await title();
	check(/peak/.test(seen.peak), "the peak is not told of at first:", seen.peak);
	await over.evaluate((e) => e.scrollIntoView({ block: "center" }));
	const box = await over.boundingBox();
	await page.mouse.click(box.x + box.width / 3, box.y + box.height / 2);
	seen.clicked = await title();
	check(seen.clicked !== seen.peak, "a click into the chart tells of the peak still");
	check(/: 0 B/.test(seen.clicked) || (await page.$$("[data-chart=memory] .detail tbody tr")).length > 0, "nobody holds memory where the chart was clicked");
	await page.click("[data-chart=memory] .tools button");
	check((await title()) === seen.peak, "the button does not go back to the peak");
	const legend = await page.$("[data-chart=memory] .legend button");
	await legend.click();
	check((await legend.evaluate((e) => e.getAttribute("aria-pressed"))) === "false", "a series cannot be hidden");
	await legend.click();
}

async function flame() {
	if (!(await page.$("[data-chart=flame]"))) return;
	const frames = () => page.$$eval(".flame g.frame", (list) => list.map((g) => ({ name: g.__data__.data.name, depth: g.__data__.depth, width: g.querySelector("rect").getBoundingClientRect().width, fill: g.querySelector("rect").getAttribute("fill") })));
	const before = await frames();
	seen.frames = before.length;
	if (!check(before.length > 1, "the flame graph has", before.length, "frames")) return;
	const part = before.filter((f) => f.depth > 0).sort((a, b) => a.width - b.width).find((f) => f.width > 4);
	await page.evaluate((name) => { const g = [...document.querySelectorAll(".flame g.frame")].find((g) => g.__data__.data.name === name); g.dispatchEvent(new MouseEvent("click", { bubbles: true })); }, part.name);
	await pause(200);
	const zoomed = (await frames()).find((f) => f.name === part.name);
	check(zoomed && zoomed.width >= before[0].width - 2, "a click does not zoom to", part.name);
	await page.click("#flame-reset");
	await pause(200);
	const after = (await frames()).find((f) => f.name === part.name && Math.abs(f.width - part.width) < 2);
	check(after, "the zoom is not undone");
	await page.type("#flame-search", part.name.slice(0, 12));
	await pause(200);
	check((await frames()).some((f) => f.fill === "var(--flame-hit)" && f.name === part.name), "the search does not mark", part.name);
	seen.search = await page.$eval("#flame-status", (e) => e.textContent);
	check(/match/.test(seen.search), "the search does not say what it found:", seen.search);
	await page.click("#flame-reset");
	const options = await page.$$eval("#flame-metric option", (list) => list.map((o) => o.value));
	for (const value of options) {
		await page.select("#flame-metric", value);
		await pause(60);
		check((await frames()).length > 0, "nothing is drawn for", value);
	}
	await page.select("#flame-metric", options[0]);
	await pause(200);
}

// tables sorts and filters all of them.
async function tables() {
	const list = await page.$$eval("table.data[id]", (tables) => tables.filter((t) => t.getClientRects().length).map((t) => t.id));
	seen.tables = list.length;
	const columns = await page.$$eval("table th", (list) => list.filter((th) => th.scope !== "col").length);
	check(columns === 0, columns, "headings have no scope");
	for (const id of list) {
		const found = await page.evaluate((id) => {
			const table = document.getElementById(id), wrong = [];
			const heads = [...table.tHead.rows[0].cells];
			const values = (i) => [...table.tBodies[0].rows].map((r) => r.cells[i].dataset.v).filter((v) => v !== "").map(Number);
			heads.forEach((th, i) => {
				for (const want of th.classList.contains("n") ? ["descending", "ascending"] : ["ascending", "descending"]) {
					th.querySelector("button").click();
					if (th.getAttribute("aria-sort") !== want) wrong.push(`${id}: ${th.textContent} is not sorted ${want}`);
					if (!th.classList.contains("n")) continue;
					const v = values(i), sign = want === "ascending" ? 1 : -1;
					if (v.some((x, k) => k > 0 && (x - v[k - 1]) * sign < 0)) wrong.push(`${id}: ${th.textContent} is in no ${want} order`);
				}
				if (heads.filter((h) => h.hasAttribute("aria-sort")).length !== 1) wrong.push(`${id}: two columns say that they are sorted`);
			});
			return wrong;
		}, id);
		seen.problems.push(...found);
	}
	const filters = [];
	for (const input of await page.$$("input[aria-controls]")) if (await input.isVisible()) filters.push(input);
	seen.filters = filters.length;
	for (const input of filters) {
		const id = await input.evaluate((e) => e.getAttribute("aria-controls"));
		const rows = () => page.$$eval(`[id="${id}"] tbody tr`, (list) => list.filter((r) => !r.hidden).map((r) => r.textContent.toLowerCase()));
		const before = await rows();
		const word = await page.$eval(`[id="${id}"] tbody tr:last-child td:last-child`, (e) => e.textContent.trim().split(/\s+/)[0].toLowerCase());
		await input.type(word);
		const after = await rows();
		check(after.length > 0 && after.every((text) => text.includes(word)), "the filter of", id, "shows other rows than those with", word);
		await input.evaluate((e) => { e.value = ""; e.dispatchEvent(new Event("input")); });
		check((await rows()).length === before.length, "the filter of", id, "does not let go");
	}
}

async function theme() {
	const state = () => page.evaluate(() => [document.getElementById("theme").textContent, getComputedStyle(document.body).backgroundColor]);
	const states = [await state()];
	for (let i = 0; i < 3; i++) {
		await page.click("#theme");
		states.push(await state());
	}
	check(states[3].join() === states[0].join(), "three clicks do not come back to the theme of the system");
	check(new Set(states.map((s) => s[1])).size === 2, "dark and light look the same");
	await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
	await pause(100);
	check((await state())[1] !== states[0][1], "a system that is dark is not followed");
	await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
	await pause(100);
}

// keyboard walks through the page by Tab: everything has a name, and the order is that of the page.
async function keyboard() {
	const page = await open(1280);
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
		check(s.forward, s.what, s.name, "comes out of order");
		check(s.outline !== "none" || s.what === "g", s.what, s.name, "does not show that it has the focus");
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
		await pause(150);
		const [wide, all] = await page.evaluate(() => [document.activeElement.querySelector("rect")?.getBoundingClientRect().width, document.querySelector(".flame svg").getBoundingClientRect().width]);
		check(wide > all - 3, "Enter does not zoom");
		await page.keyboard.press("Escape");
	}
	await page.close();
}

// elsewhere opens the page on a telephone, on paper and without scripts.
async function elsewhere() {
	const narrow = await open(390);
	const [width, inner] = await narrow.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
	const wide = await narrow.$$eval("body *", (list) => list.filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll")).map((e) => e.tagName + "." + e.className).slice(0, 3));
	check(width <= inner, "the page is", width, "wide on a screen of", inner, "because of", wide.join(", "));
	await narrow.close();
	const paper = await page.pdf({ format: "A4" });
	seen.pdf_bytes = paper.length;
	check(paper.length > 20000, "the print has", paper.length, "bytes");
	const plain = await open(1280, false);
	const text = await plain.evaluate(() => document.body.innerText);
	check(/Scripts are off/.test(text), "without scripts the page does not say so");
	check(text.includes("Verdicts") && text.includes("Quality"), "without scripts there are no verdicts");
	seen.plain_rows = (await plain.$$("table tbody tr")).length;
	check(seen.plain_rows > 0, "without scripts there are no tables");
	await plain.close();
}
