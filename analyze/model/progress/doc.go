// Package progress reads the progress of the channels of GPUs: how many works a channel had completed
// at a time.
package progress
