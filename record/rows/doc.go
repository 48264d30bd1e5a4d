// Package rows sends rows of a recording to the goroutine that writes them, without blocking.
package rows
