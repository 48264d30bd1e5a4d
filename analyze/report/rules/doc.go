// Package rules checks a recording for common problems of GPU programs: leaks, failed allocations,
// hangs, GPU errors and lost time. Each Rule reports its hits with evidence, confidence and advice.
// A Survey collects the data of all rules in one pass over the recording.
package rules
