// Package waitgraph finds the cause of a hang of several ranks: which rank waits for which, and which
// ranks wait for no other. It works on values only: reports fill a Job from their recordings.
package waitgraph
