// Package html writes the reports about a recording as one self-contained HTML page, with charts of
// memory, calls and GPU metrics, a flame graph and tables.
package html
