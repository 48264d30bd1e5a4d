// Package hosttime explains how threads of a program spent their time on the host, from rows of class host:
// waits, CPU samples, garbage collections and metrics.
//
// The recording may lack rows: waits below a least length have none, and CPU samples are rare. A time without
// evidence is CauseUnknown, never another cause.
package hosttime
