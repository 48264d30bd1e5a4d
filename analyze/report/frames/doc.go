// Package frames sets the call stacks of table rows.
package frames
