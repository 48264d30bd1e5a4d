// Package oom reports failed allocations, and why each failed.
package oom
