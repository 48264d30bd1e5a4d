package timeline

import (
	"sync"

	"github.com/gpurec/gpurec/analyze/model/livemem"
)

// memo keeps the results of models that several reports need. All views of a Timeline share it.
type memo struct {
	mu      sync.Mutex
	results map[any]*memoResult
}

type memoResult struct {
	once  sync.Once
	value any
	err   error
}

// Remember returns the result of compute for a key. It calls compute once for all views of a Timeline;
// other callers with the key wait. The type of the key should be private to its package.
func Remember[T any](t *Timeline, key any, compute func() (T, error)) (T, error) {
	t.memo.mu.Lock()
	if t.memo.results == nil {
		t.memo.results = make(map[any]*memoResult)
	}
	r := t.memo.results[key]
	if r == nil {
		r = new(memoResult)
		t.memo.results[key] = r
	}
	t.memo.mu.Unlock()
	r.once.Do(func() { r.value, r.err = compute() })
	value, _ := r.value.(T)
	return value, r.err
}

type replayCountsKey struct{}

// ReplayCounts returns the counts of a replay of memory. Only the first call replays, once for all views; every replay
// gives the same counts.
func (t *Timeline) ReplayCounts() (*livemem.ReplayCounts, error) {
	return Remember(t, replayCountsKey{}, func() (*livemem.ReplayCounts, error) {
		l, err := t.ReplayMemory(func(*livemem.Set, *livemem.Change) {})
		return &l.Counts, err
	})
}

// SetReplayCounts keeps the counts of a replay for ReplayCounts.
func (t *Timeline) SetReplayCounts(c *livemem.ReplayCounts) {
	_, _ = Remember(t, replayCountsKey{}, func() (*livemem.ReplayCounts, error) { return c, nil })
}
