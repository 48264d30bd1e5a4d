// Package summary reports the most important of all reports on one screen.
package summary
