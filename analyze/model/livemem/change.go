package livemem

// SignedBytes is by how many bytes a change moves what is live.
func SignedBytes(c *Change) int64 {
	if c.Kind == Allocated {
		return c.Block.Bytes
	}
	return -c.Block.Bytes
}
