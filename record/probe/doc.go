// Package probe loads the BPF programs, and attaches and removes the probes on functions of
// libraries. A Probes is safe for concurrent use.
package probe
