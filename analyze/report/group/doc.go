// Package group groups memory by call site, stack, function, process, rank and more. It leaves out
// memory that a suppression matches.
package group
