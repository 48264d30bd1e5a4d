// Package sql writes the SQL that makes recordings tables of DuckDB: one view for each kind of
// question, such as launches, allocations or collectives. It runs no SQL itself.
package sql
