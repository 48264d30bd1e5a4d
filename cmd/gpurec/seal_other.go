//go:build !linux

package main

// limitSealProcess does nothing: only Linux has captures.
func limitSealProcess() error { return nil }
