// Package query holds the options that choose and shape the answer of a report: the window, the
// filter, frames to fold, suppressions, and how users write times and handles.
package query
