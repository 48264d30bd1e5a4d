// Package probe loads the BPF programs, and places and removes the probes on functions of
// libraries. A Probes is safe for concurrent use.
package probe
