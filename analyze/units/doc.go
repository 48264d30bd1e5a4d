// Package units writes numbers, durations and lists as text for people, and adds numbers so
// that sums stay in their range. It knows nothing of recordings.
package units
