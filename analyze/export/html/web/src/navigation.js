// The links to sections.

/** Marks the link of the section that is being read. */
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
