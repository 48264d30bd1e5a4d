// Package xid follows the GPU errors that the driver reports, Xids and SXids, in the kernel's log
// and in the driver's tracepoint, and merges reports of the same error into one row.
package xid
