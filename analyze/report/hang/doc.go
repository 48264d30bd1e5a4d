// Package hang reports hung processes and threads at the end of a recording: open calls, threads
// without calls, and GPUs that stay busy.
package hang
