// Package stats computes trends, forecasts, quantiles of durations and heaps of the largest
// values. It knows nothing of recordings.
package stats
