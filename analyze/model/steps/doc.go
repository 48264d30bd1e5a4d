// Package steps finds the steps of programs: the sequence of launches that a process repeats, such as
// a training step or the decoding of one token. It needs the recorded calls only. Call stacks make
// the result better.
package steps
