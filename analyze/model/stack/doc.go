// Package stack holds the distinct stacks and frames of a recording, names the libraries they
// belong to, and adds source lines to native frames.
package stack
