// Package progress reads the progress of the channels of GPUs: how many operations of a channel had begun
// at a time.
package progress
