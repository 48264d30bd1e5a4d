// Package report defines the data types of a report: facts, tables, columns, units, notes, the
// quality of the recording, and the conditions of --fail-on. A Definition declares a report, with its
// flags. The packages below it compute reports; package render prints them. The types are not safe for concurrent use.
package report
