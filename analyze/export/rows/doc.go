// Package rows writes the rows of a recording as CSV, or as lines of JSON. It holds one row group in
// memory.
package rows
