// Package rows sends rows of a recording to the goroutine that writes them, without blocking, and writes
// samples of metrics as rows.
package rows
