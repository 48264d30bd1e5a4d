package analyze

import "github.com/gpurec/gpurec/analyze/model/ledger"

// replay runs all memory calls of the recording in order of effect and hands each
// change of the ledger to consume, before it is made. It returns the final ledger.
//
// The rules: failed, open and abandoned calls change nothing. A free of an unknown
// pointer ends memory from before the recording: it is counted and never makes bytes
// negative. An alloc that returns a live pointer proves that its free was lost. The
// end of a context frees what was allocated in it, the end of a process what it
// holds. Physical memory lives while it is referred to or mapped, whatever contexts
// there are. Where calls nest (a runtime call around the driver call that does the
// work) and both are recorded, the first of them to take effect counts and the other
// is the same memory.
func (t *Timeline) replay(consume func(*ledger.Ledger, *ledger.Change)) (*ledger.Ledger, error) {
	r := ledger.Replay{Ledger: ledger.New(&t.origins, t.endedWith), Events: t.events, Consume: consume}
	err := inOrder(t.memory, t.streamMemory(), func(m *ledger.Call) error {
		r.Call(m)
		return nil
	})
	r.Finish()
	return r.Ledger, t.wrap(err)
}
