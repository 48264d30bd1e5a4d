// Package calls reads recorded calls in the order of their start, and counts them.
package calls
