package ledger

// Signed is by how many bytes a change moves what is live.
func Signed(c *Change) int64 {
	if c.Kind == Allocated {
		return c.Block.Bytes
	}
	return -c.Block.Bytes
}
