// Package stack holds the distinct stacks and frames of a recording, the libraries that they belong
// to, and source lines of native frames.
package stack
