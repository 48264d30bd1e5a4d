// Package calls reads calls one after the other, and counts them.
package calls
