package analyzetest

import (
	"encoding/json"
	"maps"

	"github.com/gpurec/gpurec/format"
)

// PointerTo returns a pointer to n, for the optional fields of format.Identity.
func PointerTo(n int) *int { return &n }

// AddIdentity adds an identity, and other facts, to the message of a process's row.
func (recording *TestRecording) AddIdentity(pid int32, id format.Identity, more map[string]any) {
	recording.t.Helper()
	for _, r := range recording.Rows {
		if r.Kind != format.KindProcess || r.Pid != pid {
			continue
		}
		message := make(map[string]any)
		if r.Message != "" {
			if err := json.Unmarshal([]byte(r.Message), &message); err != nil {
				recording.t.Fatal(err)
			}
		}
		maps.Copy(message, more)
		message["identity"] = id
		text, err := json.Marshal(message)
		if err != nil {
			recording.t.Fatal(err)
		}
		r.Message = string(text)
	}
}

// RankIdentity returns the identity of a rank in a job with `of` ranks, two on each node.
func RankIdentity(rank, of int, job string) format.Identity {
	return format.Identity{
		Rank:      PointerTo(rank),
		WorldSize: PointerTo(of),
		LocalRank: PointerTo(rank % 2),
		Job:       job,
		Attempt:   PointerTo(1),
		Sources: map[string]string{
			"rank":       "env RANK",
			"world_size": "env WORLD_SIZE",
			"local_rank": "env LOCAL_RANK",
			"job":        "cgroup",
			"attempt":    "env TORCHELASTIC_RESTART_COUNT",
		},
	}
}
