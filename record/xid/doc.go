// Package xid follows Xids and SXids, the GPU errors that the driver reports, in the kernel's log
// and in the driver's tracepoint. It merges reports of the same error into one row.
package xid
