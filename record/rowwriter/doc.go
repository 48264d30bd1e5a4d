// Package rowwriter decodes the records of the BPF programs into rows and writes them. One goroutine
// runs a Writer and owns its state; methods that other goroutines may call say so.
package rowwriter
