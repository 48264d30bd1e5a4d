// The navigation bar with links to the sections.

/** Marks the link of the section at the top of the window while the reader scrolls. */
export function followSections() {
	const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
	const observer = new IntersectionObserver((entries) => {
		for (const { isIntersecting, target } of entries) {
			if (!isIntersecting) continue;
			for (const a of links.values()) a.removeAttribute("aria-current");
			links.get(target.id)?.setAttribute("aria-current", "true");
		}
	}, { rootMargin: "-60px 0px -75% 0px" });
	for (const section of document.querySelectorAll("section")) observer.observe(section);
}
