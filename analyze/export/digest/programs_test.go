package digest_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/rankjob"
	"github.com/gpurec/gpurec/analyze/analyzetest/rulecases"
	"github.com/gpurec/gpurec/analyze/model/timeline"
)

// program is a program whose problem is known.
type program struct {
	name     string
	severity string // of the first finding; "" for a program without a problem
	finding  string // name of the first finding
	where    string // prefix of its location
	evidence string // report that must support it, besides rules
	record   func(t *testing.T) *timeline.Timeline
}

// ruleCase returns the recording in which a rule fires.
func ruleCase(rule string) func(t *testing.T) *timeline.Timeline {
	return func(t *testing.T) *timeline.Timeline {
		recording := analyzetest.SteadyRecording(t)
		rulecases.AllCases()[rule].Fires(recording)
		return recording.Timeline()
	}
}

// slowRank returns the recording of a job with a rank whose host is slow.
func slowRank(t *testing.T) *timeline.Timeline {
	spec := rankjob.Spec{
		Seed: 1, Ranks: 4, Hosts: 1, Steps: 100, NoGPUTimes: true,
		Faults: []rankjob.Fault{{Kind: rankjob.SlowHost, Rank: 2, FromStep: 30, Ns: 6 * analyzetest.Ms}},
	}
	return spec.Recording(t).Timeline()
}

// programs are a program without a problem, and programs with one each.
var programs = []program{
	{name: "fine", record: func(t *testing.T) *timeline.Timeline { return analyzetest.SteadyRecording(t).Timeline() }},
	{"leak", "problem", "growing-site", "train_step (train.cc:10)", "leaks", ruleCase("growing-site")},
	{"exit", "info", "exit-leak", "train_step (train.cc:10)", "leaks", ruleCase("exit-leak")},
	{
		"readings", "notice", "blocks", "131072 B", "blocks",
		func(t *testing.T) *timeline.Timeline { return analyzetest.BlocksRecording(t).Timeline() },
	},
	{"frag", "notice", "out-of-memory", "forward (model.py:12)", "oom", ruleCase("oom-fragmentation")},
	{"oom", "problem", "out-of-memory", "train_step (train.cc:10)", "oom", ruleCase("out-of-memory")},
	{"hang", "problem", "hang", "train_step (train.cc:10) in process 42 train", "hang", ruleCase("hang")},
	{"xid", "problem", "xid", "GPU 1 NVIDIA H200, process 42 train", "xid", ruleCase("xid")},
	{"fault", "problem", "broken-context", "train_step (train.cc:10)", "errors", ruleCase("broken-context")},
	{"errors", "notice", "unchecked-error", "train_step (train.cc:10)", "errors", ruleCase("unchecked-error")},
	{"double free", "problem", "invalid-free", "train_step (train.cc:10)", "errors", ruleCase("invalid-free")},
	{"throttled", "problem", "throttling", "GPU 1 NVIDIA H200", "gpu", ruleCase("throttling")},
	{"launches", "notice", "launch-bound", "train_step (train.cc:10)", "", ruleCase("launch-bound")},
	{"loader", "notice", "dataloader-bound", "main (train.py:7)", "gaps", ruleCase("dataloader-bound")},
	{"missing rank", "problem", "rank-missing", "rank 2 (pid 202)", "hang", ruleCase("rank-missing")},
	{"slow rank", "notice", "straggler", "rank 2", "rules", slowRank},
}
