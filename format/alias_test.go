package format

import (
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestRationedStacksAreResolved checks that rationed stacks are those of their aliases, wherever the
// alias is in the recording.
func TestRationedStacksAreResolved(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "r.parquet")
	w, err := Create(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	calls := []Row{
		{Kind: KindLaunch, StackID: 3, StackStatus: StackRationed},
		{Kind: KindLaunch, StackID: 1, StackStatus: StackComplete, Site: "a (x.py:1)"},
		{Kind: KindLaunch, StackID: 4, StackStatus: StackRationed},
		{Kind: KindLaunch, StackStatus: StackRationed},
		{Kind: KindLaunch, StackID: 5, StackStatus: StackRationed},
	}
	stacks := []Row{
		{Kind: KindStack, StackID: 1, StackStatus: StackComplete, Site: "a (x.py:1)"},
		{Kind: KindStack, StackID: 2, StackStatus: StackComplete, Site: "b (x.py:2)"},
		{Kind: KindStackAlias, StackID: 3, Value: 1, Site: "a (x.py:1)"},
		{Kind: KindStackAlias, StackID: 5, Value: 2, Site: "b (x.py:2)"},
	}
	for class, rows := range map[Class][]Row{ClassCall: calls, ClassStack: stacks} {
		if err := w.Write(class, rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(Meta{}); err != nil {
		t.Fatal(err)
	}
	rec, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	var cache ColumnCache
	for _, g := range rec.Groups() {
		if g.Class() != ClassCall {
			continue
		}
		for _, g := range []*Group{g, cache.Wrap(g)} {
			ids, status, sites := g.Int32("stack_id", nil), g.Strings("stack_status"), g.Strings("site")
			for i, want := range []Row{
				{StackID: 1, StackStatus: StackInferred, Site: "a (x.py:1)"},
				{StackID: 1, StackStatus: StackComplete, Site: "a (x.py:1)"},
				{StackID: 4, StackStatus: StackRationed},
				{StackStatus: StackRationed},
				{StackID: 2, StackStatus: StackInferred, Site: "b (x.py:2)"},
			} {
				if ids[i] != want.StackID || status.At(i) != want.StackStatus || sites.At(i) != want.Site {
					t.Errorf("call %d: stack %d %s %q", i, ids[i], status.At(i), sites.At(i))
				}
			}
			if err := g.Err(); err != nil {
				t.Error(err)
			}
		}
	}
}
