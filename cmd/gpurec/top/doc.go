// Package top shows what recorded processes do at the moment: as a table in a terminal that the user sorts
// and filters by keys, as text, or as JSON lines. Its numbers are those of package live.
package top
