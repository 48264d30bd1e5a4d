// Package oom reports failed allocations and the reason of each failure.
package oom
