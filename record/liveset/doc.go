// Package liveset knows the driver memory of running processes that is live now: one entry for each allocation that
// was recorded and not freed. A ring may have dropped the rows of such allocations, so a capture gets them from here.
// The package does no I/O. Its memory is bounded.
package liveset
