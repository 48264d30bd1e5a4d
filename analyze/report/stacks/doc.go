// Package stacks reports the calls and their states by stack.
package stacks
