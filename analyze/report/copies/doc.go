// Package copies reports copies and fills: bytes, rates, pageable host memory.
package copies
