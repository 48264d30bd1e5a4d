// Package census compares how many collectives the ranks of a communicator have launched, by the counters of NCCL. It
// needs no recorded call.
package census
