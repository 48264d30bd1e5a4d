// Package frames fills the stacks of rows.
package frames
