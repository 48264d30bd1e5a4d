// Package changes reports when the measured values of a job moved to another level, and what else
// happened then.
package changes
