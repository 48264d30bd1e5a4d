// Package privilege knows the capabilities that recording needs, and drops all others.
package privilege
