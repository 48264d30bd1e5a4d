// Package copies reports memory copies: bytes, rates, pageable host memory and bursts.
package copies
