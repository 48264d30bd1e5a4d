// Package simtest provides simulated inputs for tests of record: the NVML of simcuda, a kernel log
// and a tracefs. It also skips tests that cannot run on this machine.
package simtest
