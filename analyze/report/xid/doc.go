// Package xid reports the NVIDIA driver's Xid errors and the kernel launches before them.
package xid
