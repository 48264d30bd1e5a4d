// Package diff compares two reports of the same kind. It knows no particular report.
package diff
