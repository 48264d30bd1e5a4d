// Package spill keeps lists of bytes that are too long for memory in temporary files.
package spill
