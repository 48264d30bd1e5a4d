// Package sampling reduces the overhead of a recording. It records kernel launches, their stacks
// and their returns for part of the time, and stops probing getters that are called too often.
package sampling
