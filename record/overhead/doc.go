// Package overhead computes the overhead of probes in the recorded program. It decides which kernel
// launches are not recorded to keep the overhead below a limit.
package overhead
