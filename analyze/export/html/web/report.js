// Brings the page to life: tables first, then charts, then theme and printing.
"use strict";

(() => {
	const root = document.documentElement;
	const dark = matchMedia("(prefers-color-scheme: dark)");
	const themes = ["auto", "light", "dark"];
	const button = document.getElementById("theme");
	let theme = "auto", printing = false;

	const redraw = () => page.charts.forEach((c) => c.draw());
	const applyTheme = () => {
		root.dataset.theme = theme;
		root.classList.toggle("dark", !printing && (theme === "dark" || theme === "auto" && dark.matches));
		button.textContent = "Theme: " + { auto: "as the system", light: "light", dark: "dark" }[theme];
	};
	button.addEventListener("click", () => {
		theme = themes[(themes.indexOf(theme) + 1) % themes.length];
		applyTheme();
		redraw();
	});
	dark.addEventListener("change", () => { applyTheme(); redraw(); });
	applyTheme();

	for (const e of document.querySelectorAll(".scripted")) e.hidden = false;
	for (const e of document.querySelectorAll(".unscripted")) e.hidden = true;
	enhanceTables();

	page.data = JSON.parse(document.getElementById("data").textContent);
	const draw = { memory: drawMemory, activity: drawActivity, gpus: drawGPUs, flame: drawFlame };
	for (const box of document.querySelectorAll("[data-chart]")) draw[box.dataset.chart](box);

	let width = innerWidth, timer;
	addEventListener("resize", () => {
		if (innerWidth === width || printing) return;
		width = innerWidth;
		clearTimeout(timer);
		timer = setTimeout(redraw, 120);
	});

	// Paper is white and narrow: charts are drawn again for it.
	const setPrinting = (on) => {
		if (on === printing) return;
		printing = on;
		document.querySelector("main").style.width = on ? "680px" : "";
		applyTheme();
		for (const c of page.charts) if (!c.screenOnly) c.draw();
	};
	addEventListener("beforeprint", () => setPrinting(true));
	addEventListener("afterprint", () => setPrinting(false));

	// A link to a row's section opens in view; the section that is read is marked.
	const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
	const seen = new IntersectionObserver((entries) => {
		for (const e of entries) {
			if (!e.isIntersecting) continue;
			for (const a of links.values()) a.removeAttribute("aria-current");
			links.get(e.target.id)?.setAttribute("aria-current", "true");
		}
	}, { rootMargin: "-60px 0px -75% 0px" });
	for (const s of document.querySelectorAll("section")) seen.observe(s);
	root.dataset.ready = String(Math.round(performance.now()));
})();
