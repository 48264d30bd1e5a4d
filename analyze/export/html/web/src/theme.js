// The theme of the page: that of the system, light or dark. Printed pages are always light.

const names = { auto: "as the system", light: "light", dark: "dark" };

/**
 * Returns the theme after a click on the theme button.
 *
 * @param {string} theme "auto", "light" or "dark"
 * @returns {string}
 */
export function nextTheme(theme) {
	const themes = Object.keys(names);
	return themes[(themes.indexOf(theme) + 1) % themes.length];
}

/**
 * Reports whether the page has dark colours.
 *
 * @param {string} theme "auto", "light" or "dark"
 * @param {boolean} isSystemDark
 * @param {boolean} isPrinting
 * @returns {boolean}
 */
export function isDark(theme, isSystemDark, isPrinting) {
	return !isPrinting && (theme === "dark" || (theme === "auto" && isSystemDark));
}

/** The state of the theme, and the button that changes it. */
export class Theme {
	/**
	 * @param {HTMLElement} control the button that changes the theme
	 * @param {function(): void} onChange is called after each change, except changes for printing
	 */
	constructor(control, onChange) {
		this.control = control;
		this.system = matchMedia("(prefers-color-scheme: dark)");
		this.name = "auto";
		this.isPrinting = false;
		control.addEventListener("click", () => {
			this.name = nextTheme(this.name);
			this.apply();
			onChange();
		});
		this.system.addEventListener("change", () => {
			this.apply();
			onChange();
		});
		this.apply();
	}

	apply() {
		const root = document.documentElement;
		root.dataset.theme = this.name;
		root.classList.toggle("dark", isDark(this.name, this.system.matches, this.isPrinting));
		this.control.textContent = "Theme: " + names[this.name];
	}

	setPrinting(isPrinting) {
		this.isPrinting = isPrinting;
		this.apply();
	}
}
