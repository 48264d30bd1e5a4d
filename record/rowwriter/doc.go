// Package rowwriter decodes the records of the BPF programs into rows and writes the rows. One
// goroutine runs a Writer and owns its state. Methods that other goroutines may call say so.
package rowwriter
