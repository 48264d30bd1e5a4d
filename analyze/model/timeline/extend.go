package timeline

import "github.com/gpurec/gpurec/format"

// Extend adds the next piece of a growing recording: its row groups, stacks, facts and samples. It brings up to date
// what Open derives from them. Replays that can Advance then continue with the new rows. The numbers of stacks must be
// the same in all pieces, and all pieces must stay open while the Timeline is used. A fact or a stack must come no
// later than the first row that needs it.
//
// After the last piece, the Timeline is like one that Open returns for the whole recording, with these exceptions:
//
//   - Rec is the last piece.
//   - A stack whose recording was rationed has frames only if its alias is in the same piece.
//   - The device of a context is not learned from the memory of fills and copies in earlier pieces, if the device of
//     that memory becomes known only later.
//
// Until the end, the following can still change, because later rows decide it. A replay does not correct what it has
// passed on:
//
//   - the device of calls in a context whose device a later call reveals, and of origins that have it;
//   - whether the end of a context is that of the process's memory (MemoryEvent.Last): a later allocation denies it;
//   - the end of a primary context at its last known release: a later use of the context shows an unknown retain;
//   - the context that cuDevicePrimaryCtxReset ends, if the context is retained only later;
//   - whether frees of blocks belong to the teardown of their process: its end decides it (IsInTeardown);
//   - whether driver memory is a segment that an allocator had before its first event (ProgramReplay.Advance);
//   - the weights of sampled launches, and the note about the coverage of sampling;
//   - an earlier state of a caching allocator whose rows are in several pieces;
//   - facts that later facts replace, such as the only device, ranks and the end of a process.
//
// Views and the results of models are those of the recording before: create new ones. Call AddSourceLines only after
// the last Extend. No replay, view or model of the Timeline may run during Extend. Its time grows with the piece, and
// with the number of calls that APIScan collects. A retain or release of a primary context makes it read all calls once
// more. It returns errors of reading the piece; then the Timeline is incomplete.
func (t *Timeline) Extend(piece *format.Recording) error {
	if t.frameIDs == nil {
		t.frameIDs = make(map[format.Frame]int32, len(t.Stacks.Frames))
		for i := range t.Stacks.Frames {
			t.frameIDs[t.Stacks.Frames[i]] = int32(i)
		}
	}
	t.extended++
	t.Rec, t.Pieces = piece, append(t.Pieces, piece)
	t.memo, t.weights, t.segments, t.teardowns = new(memo), nil, nil, nil
	if err := t.Facts.Extend(piece); err != nil {
		return err
	}
	return t.addRows(t.frameIDs)
}
