// Package sampling leaves out of a recording what would cost the program too much: kernel launches,
// their stacks and their returns for part of the time, and getters that are called too often.
package sampling
