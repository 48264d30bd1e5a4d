// Package report holds the answer of a report as values: facts, tables with their columns and
// units, notes, the quality of the recording, and the conditions of --fail-on. It computes no
// answer and draws none. Its values are not safe for concurrent use.
package report
