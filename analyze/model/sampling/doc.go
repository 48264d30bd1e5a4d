// Package sampling follows in which spans launches were left out of the recording, and computes
// the weight of those that were recorded.
package sampling
