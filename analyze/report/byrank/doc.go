// Package byrank computes a report for each rank of a job, and merges the results into one report with a column of
// ranks.
package byrank
