// Package progress records GPU times from outside. For each channel, a GPU writes two words into
// memory of the process: a counter of the operations that have begun, and its time at the start of the last one. This
// package finds these slots, polls them, and writes their changes as rows.
//
// A finder trusts words only if they change with the calls of the process. Words that change by
// themselves are never recorded.
//
// Each process has two goroutines. The finder scans the device memory of the process for slots. The
// poller owns the slots that were found, and the numbers of their channels.
package progress
