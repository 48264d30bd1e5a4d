// Package sampling tracks when launches were left out of a recording (--max-overhead), and computes
// the weights of the launches that were recorded. Its types are not safe for concurrent use.
package sampling
