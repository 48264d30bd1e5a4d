// Package stats computes trends, forecasts, quantiles of durations, and heaps. It does not know
// about recordings. Its types are not safe for concurrent use.
package stats
