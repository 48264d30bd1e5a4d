// Package units formats numbers, durations and lists as text, and adds numbers without overflow. It
// does not know about recordings. All functions are safe for concurrent use.
package units
