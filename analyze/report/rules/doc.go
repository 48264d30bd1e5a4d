// Package rules checks a recording for common problems of GPU programs: leaks, failed allocations,
// hangs, GPU errors and lost time. Each Rule reports its hits with evidence, confidence and advice.
// A Scan collects the data of all rules in one survey of the recording.
package rules
