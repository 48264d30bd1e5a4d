// Opens a trace in Perfetto's UI in headless Chromium and prints the displayed tracks.
//
//	node perfetto_ui.mjs UI_DIR PUPPETEER_DIR CHROMIUM TRACE [SHOT.png]
//
// UI_DIR is the folder in which scripts/viewers.sh installed the UI: v20.1, a packaged fork without
// the column of track names. The script reads the names from the UI's state. It serves the UI on a
// free port of this machine and blocks all other requests. It prints one JSON object: names of
// tracks and groups, the number of drawn colours, the errors that the UI found in the trace, and
// problems as a list of sentences.
import { createReadStream, existsSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { basename, extname, join, resolve } from "node:path";

const [ui, tools, chromium, trace, shot] = process.argv.slice(2);
const puppeteer = createRequire(join(resolve(tools), "x.js"))("puppeteer-core");
const types = { ".js": "text/javascript", ".wasm": "application/wasm", ".css": "text/css", ".png": "image/png", ".woff2": "font/woff2" };

const server = createServer((request, response) => {
	const path = new URL(request.url, "http://x").pathname;
	if (path === "/") {
		response.setHeader("content-type", "text/html");
		return response.end(`<!DOCTYPE html><meta charset="utf-8"><link rel="icon" href="data:,"><link rel="stylesheet" href="/perfetto.css"><style>html,body{margin:0;height:100%}#timeline_main{position:relative;height:100vh}</style><body><div id="timeline_data_source" hidden>http://${request.headers.host}/trace</div><main id="timeline_main"></main><script src="/frontend_bundle.js"></script>`);
	}
	const file = path === "/trace" ? trace : join(ui, path.startsWith("/assets/") ? "assets" : "", basename(path));
	if (!existsSync(file)) return response.writeHead(404).end();
	response.setHeader("content-type", types[extname(file)] ?? "application/octet-stream");
	response.setHeader("content-length", statSync(file).size); // the UI needs the size of the trace
	createReadStream(file).pipe(response);
}).listen(0, "127.0.0.1");
await new Promise((done) => server.once("listening", done));
const origin = `http://127.0.0.1:${server.address().port}`;

const seen = { problems: [] };
const hangMs = 300_000; // a limit only ends a hang: a busy machine is slow
const browser = await puppeteer.launch({ executablePath: chromium, timeout: hangMs, protocolTimeout: hangMs, headless: true, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-extensions"] });
const page = await browser.newPage();
await page.setViewport({ width: 1280, height: 1000 });
page.on("pageerror", (e) => seen.problems.push("script error: " + e.message));
await page.setRequestInterception(true);
page.on("request", (r) => {
	const inside = r.url().startsWith(origin) || /^(data|blob):/.test(r.url());
	// The UI first tries to connect to a trace_processor on this machine.
	if (!inside && !r.url().startsWith("http://127.0.0.1:9001/")) seen.problems.push("network request to " + r.url());
	return inside ? r.continue() : r.abort();
});
const began = Date.now();
try {
	await page.goto(origin, { waitUntil: "load", timeout: hangMs });
	const ready = () => window.globals && Object.values(globals.state.engines ?? {}).some((e) => e.ready) && Object.keys(globals.state.tracks ?? {}).length > 0;
	await page.waitForFunction(ready, { timeout: hangMs, polling: 100 });
	// colours counts the colours of all canvases. A timeline without data has only a few, of the grid and the text.
	await page.evaluate(() => {
		window.colours = () => [...document.querySelectorAll("canvas")].reduce((sum, c) => {
			if (!c.width || !c.height) return sum;
			const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height), found = new Set();
			for (let i = 0; i < data.length; i += 16) if (data[i + 3] === 255) found.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
			return sum + found.size;
		}, 0);
	});
	await page.waitForFunction(() => window.colours() > 20, { timeout: hangMs, polling: 200 }).catch(() => seen.problems.push("the timeline is empty"));
	Object.assign(seen, await page.evaluate(() => ({
		tracks: Object.values(globals.state.tracks).map((t) => t.name),
		groups: Object.values(globals.state.trackGroups).map((g) => g.name),
		trace_errors: globals.traceErrors ?? 0,
		colours: window.colours(),
	})));
	if (shot) seen.shot_bytes = (await page.screenshot({ path: shot })).length;
} catch (e) {
	seen.problems.push(e.message);
}
seen.ms = Date.now() - began;
await browser.close();
server.close();
console.log(JSON.stringify(seen));
process.exit(0);
