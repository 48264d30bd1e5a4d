// Package group groups memory by call site, stack, function, process, rank and more, and leaves
// out what suppressions name.
package group
