// Package interpreter samples GIL and garbage collection of CPython 3.11 to 3.13 from outside.
package interpreter
