package format

// Passes returns how often the row groups of each class were read so far: how often the most read column of such a row
// group was decoded. Columns that a ColumnCache returns again do not count, nor do rows that are read as a whole.
// Tests compare it, because each pass over a large recording costs seconds. It is safe for concurrent use.
func (r *Recording) Passes() map[Class]int {
	passes := make(map[Class]int)
	for _, g := range r.groups {
		for i := range g.reads {
			if n := int(g.reads[i].Load()); n > 0 {
				passes[g.Class()] = max(passes[g.Class()], n)
			}
		}
	}
	return passes
}
