// Package stack names the stacks of calls, each distinct one once. A Table is not safe for
// concurrent use.
package stack
