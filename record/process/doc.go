// Package process reads /proc of a recorded process: its files, mappings, environment, cgroup and
// GPUs. The process may be hostile: what is read is bounded, and only regular files are opened.
package process
