// Package hang reports what blocks at the end of a recording: open calls, silent threads and GPUs
// that stay busy.
package hang
