// Functions that create HTML elements and read colours of the theme.

/**
 * Creates an HTML element. An entry of attributes sets the property with that name if the element
 * has one, else the HTML attribute. The entry text sets the text of the element.
 *
 * @param {string} tag
 * @param {Object<string, *>} attributes
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function element(tag, attributes = {}, ...children) {
	const e = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes)) {
		if (name === "text") e.textContent = value;
		else if (name in e) e[name] = value;
		else e.setAttribute(name, value);
	}
	e.append(...children);
	return e;
}

/**
 * Creates an HTML button.
 *
 * @param {string} text
 * @param {function(): void} onClick
 * @param {Object<string, *>} attributes
 * @returns {HTMLElement}
 */
export function button(text, onClick, attributes = {}) {
	const e = element("button", { type: "button", text, ...attributes });
	e.addEventListener("click", onClick);
	return e;
}

/**
 * Returns a colour of the current theme.
 *
 * @param {string} name of a CSS variable: --c0
 * @returns {string}
 */
export function themeColour(name) {
	return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
