// Package rows hands rows of a recording to the goroutine that writes them, without waiting.
package rows
