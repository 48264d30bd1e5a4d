// Package scribe decodes the records of the BPF programs into rows and writes them. One goroutine
// runs a Scribe and owns its state; methods that other goroutines may call say so.
package scribe
