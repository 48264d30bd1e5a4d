package livemem

// BlockSet is a set of small numbers.
type BlockSet []uint64

func (s *BlockSet) Add(n int32) {
	for int(n)/64 >= len(*s) {
		*s = append(*s, 0)
	}
	(*s)[n/64] |= 1 << (n % 64)
}

func (s *BlockSet) Union(o BlockSet) {
	for i, bits := range o {
		for len(*s) <= i {
			*s = append(*s, 0)
		}
		(*s)[i] |= bits
	}
}

func (s BlockSet) Has(n int32) bool { return int(n)/64 < len(s) && s[n/64]&(1<<(n%64)) != 0 }
