package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gpu"
)

var gpuHealthRule = Rule{
	ID: "gpu-health",
	About: "a health check of analyze gpu failed. A problem, for any sampled GPU: uncorrected ECC errors, pending " +
		"row remapping or page retirement, overheating. " +
		"A notice, for GPUs that the recorded processes used: corrected ECC errors, a slow PCIe link, PCIe replays, " +
		"ECC off",
	Report: "gpu",
	check:  checkGPUHealth,
}

func checkGPUHealth(s *Scan) ([]Hit, error) {
	var hits []Hit
	used := s.listUsedGPUs()
	for _, device := range s.series.SortedIndexes() {
		hits = append(hits, s.newHealthHits(device, slices.Contains(used, device))...)
	}
	return hits, nil
}

// newHealthHits returns a hit for the problems of a GPU, and one for its notices. used reports
// whether the recorded processes used the GPU: the notices of an unused GPU are left out.
func (s *Scan) newHealthHits(device int32, used bool) (hits []Hit) {
	for _, severity := range []int{SeverityProblem, SeverityNotice} {
		h := Hit{Severity: severity, Confidence: report.ConfidenceHigh} // the GPU's own counters are exact
		var states, actions []string
		for _, state := range gpu.CheckHealth(s.series, device) {
			if state.Level != severity || severity == SeverityNotice && !used {
				continue
			}
			text := state.Name + ": " + state.State
			states = append(states, text)
			if !slices.Contains(actions, state.Action) {
				actions = append(actions, state.Action)
			}
			h.Evidence = append(
				h.Evidence,
				Evidence{Where: s.gpuLabel(device), Detail: fmt.Sprintf("%s: %s", text, state.Action)},
			)
		}
		if len(states) == 0 {
			continue
		}
		h.Summary = strings.Join(states, "; ")
		h.Advice = makeSentence(strings.Join(actions, "; "))
		hits = append(hits, h)
	}
	return hits
}

// makeSentence returns a phrase as a sentence: with a capital letter, unless it is a command, and a
// full stop.
func makeSentence(phrase string) string {
	if phrase == "" || strings.HasPrefix(phrase, "nvidia-smi") {
		return phrase + "."
	}
	return strings.ToUpper(phrase[:1]) + phrase[1:] + "."
}
