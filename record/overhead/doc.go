// Package overhead computes what probes cost the recorded program, and decides which launches of
// kernels are left out to keep that below a limit.
package overhead
