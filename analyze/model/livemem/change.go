package livemem

// LiveBytesChange returns the change of live bytes: positive for an allocation, negative for the
// end of a block.
func LiveBytesChange(c *Change) int64 {
	if c.Kind == ChangeAllocated {
		return c.Block.Bytes
	}
	return -c.Block.Bytes
}
