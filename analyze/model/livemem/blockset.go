package livemem

// BlockNumberSet is a set of block numbers, see Block.Number. The zero value is empty.
type BlockNumberSet []uint64

// AddNumber adds a block number to the set.
func (s *BlockNumberSet) AddNumber(n int32) {
	for int(n)/64 >= len(*s) {
		*s = append(*s, 0)
	}
	(*s)[n/64] |= 1 << (n % 64)
}

// Union adds all block numbers of another set.
func (s *BlockNumberSet) Union(o BlockNumberSet) {
	for i, bits := range o {
		for len(*s) <= i {
			*s = append(*s, 0)
		}
		(*s)[i] |= bits
	}
}

// Has reports whether the set contains a block number.
func (s BlockNumberSet) Has(n int32) bool { return int(n)/64 < len(s) && s[n/64]&(1<<(n%64)) != 0 }
