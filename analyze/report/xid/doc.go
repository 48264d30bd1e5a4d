// Package xid reports Xids of the driver with the launches before them.
package xid
