// Package verdict says which faults a running recording shows. Find applies the rules for failures, hangs and growing
// memory to all rows so far. A Log decides which findings are certain.
package verdict
