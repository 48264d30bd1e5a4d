// Package html writes a recording as one self-contained HTML page.
package html
