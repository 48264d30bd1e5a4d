// Package ledger replays memory calls of the driver into the memory that is live: allocations,
// virtual memory, borrowed memory, contexts and graphs. Calls go in, changes come out; it reads
// no recording and does no I/O. A Ledger is not safe for concurrent use.
package livemem
