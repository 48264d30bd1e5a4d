// Package summary shows the most important facts and rows of all other reports on one screen.
package summary
