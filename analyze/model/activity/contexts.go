package activity

import "github.com/gpurec/gpurec/analyze/model/timeline"

// readOnlyContexts returns the context of each process that uses only one. The first calls of a thread
// may lack their context, because the thread made it current before the recording. isSeveral reports that
// other processes use several contexts.
func readOnlyContexts(t *timeline.Timeline) (only map[int32]int64, isSeveral bool, err error) {
	const several = -1
	only = make(map[int32]int64)
	var contexts []int64
	var pids []int32
	for _, span := range t.Calls {
		g := span.Group
		contexts, pids = g.Int64("context", contexts), g.Int32("pid", pids)
		if g.Err() != nil {
			return nil, false, g.Err()
		}
		for i, context := range contexts {
			if context == 0 || only[pids[i]] == context {
				continue
			}
			if only[pids[i]] == 0 {
				only[pids[i]] = context
			} else {
				only[pids[i]] = several
			}
		}
	}
	for pid, context := range only {
		if context == several {
			delete(only, pid)
			isSeveral = true
		}
	}
	return only, isSeveral, nil
}
