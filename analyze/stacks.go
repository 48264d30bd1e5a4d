package analyze

import (
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/format"
)

func (t *Timeline) readStacks() error {
	t.stacks.Stacks = make(map[int32][]int32)
	t.stacks.About = make(map[int32]stack.About)
	ids := make(map[format.Frame]int32)
	return t.rec.Rows(func(r *format.Row) error {
		if r.Kind == format.KindStack {
			t.stacks.Add(r, ids)
		}
		return nil
	}, format.ClassStack)
}
