// Package review decides when a running recording is reviewed: when its rows so far are analyzed. It is pure: it gets
// rows, calls and the time. Signs finds reasons for a review in rows and open calls. Pace says when the next one begins,
// so that all of them together take a small share of a processor.
package review
