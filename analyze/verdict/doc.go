// Package verdict says what the rules find in a recording while it grows. Find applies the rules for failures, hangs and
// growing memory to the recording as far as it has come. A Log decides which findings are certain.
package verdict
