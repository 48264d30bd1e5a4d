// Package simtest helps tests of record: it skips what cannot run here, loads simcuda's NVML, and
// makes a kernel log and a tracefs whose text the test writes.
package simtest
