package livemem

// SignedBytes returns the change of live bytes: positive for an allocation, negative for the end of
// a block.
func SignedBytes(c *Change) int64 {
	if c.Kind == Allocated {
		return c.Block.Bytes
	}
	return -c.Block.Bytes
}
