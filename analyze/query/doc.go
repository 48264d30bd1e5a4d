// Package query holds the options of a report: the time window, the filter, hidden frames and
// suppressions. It also parses the times and handles that users write.
package query
