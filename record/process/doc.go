// Package process reads /proc of a recorded process: files, mappings, environment, cgroup and GPUs.
// The process may be hostile, so reads are bounded and only regular files are opened.
package process
