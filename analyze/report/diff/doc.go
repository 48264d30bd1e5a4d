// Package diff compares two reports of the same kind. It works for every report.
package diff
