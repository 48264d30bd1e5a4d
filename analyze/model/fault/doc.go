// Package fault finds asynchronous errors with the launches before them, and says why frees failed.
package fault
