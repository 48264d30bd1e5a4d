// Package privilege says which capabilities recording needs, and drops the others.
package privilege
