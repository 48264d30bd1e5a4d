// Package straggler finds the ranks of a job for which others wait, and says why they are late. It is pure
// computation over times that were measured on each rank's own clock, so clocks of hosts do not matter.
//
// In a synchronous job all steps last equally long, and the slow rank is the one that waits least. The own time
// of a step is its duration without the time in collectives, which has waits and transfers. Without GPU times it
// is the duration without the time in which the host was blocked by the driver: then a late host shows, and a
// slow GPU does not.
package straggler
