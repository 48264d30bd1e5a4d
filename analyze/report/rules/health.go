package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gpu"
)

var ruleGPUHealth = Rule{
	ID: "gpu-health",
	About: "a check of health of analyze gpu is not as it should be: uncorrected ECC errors, rows to be remapped, " +
		"pages to be retired, too hot (a problem, of any GPU that was sampled); " +
		"corrected ECC errors, PCIe below what it can, packets sent again, ECC off (a notice, of GPUs that the " +
		"recorded processes used)",
	Report: "gpu",
	check:  checkGPUHealth,
}

func checkGPUHealth(s *Survey) ([]Hit, error) {
	var hits []Hit
	used := s.watchedGPUs()
	for _, device := range s.gpu.Sorted() {
		hits = append(hits, s.healthHits(device, slices.Contains(used, device))...)
	}
	return hits, nil
}

// healthHits returns a hit for the problems of a GPU, and one for its notices if the recorded
// processes used it.
func (s *Survey) healthHits(device int32, used bool) (hits []Hit) {
	for _, severity := range []int{SeverityProblem, SeverityNotice} {
		h := Hit{Severity: severity, Level: report.ConfidenceHigh} // the GPU counts these itself
		var said, actions []string
		for _, state := range gpu.Health(s.gpu, device) {
			if state.Level != severity || severity == SeverityNotice && !used {
				continue
			}
			text := state.Name + ": " + state.State
			said = append(said, text)
			if !slices.Contains(actions, state.Action) {
				actions = append(actions, state.Action)
			}
			h.Places = append(
				h.Places,
				Place{Where: s.gpuLabel(device), Detail: fmt.Sprintf("%s: %s", text, state.Action)},
			)
		}
		if len(said) == 0 {
			continue
		}
		h.What = strings.Join(said, "; ")
		h.Advice = sentence(strings.Join(actions, "; "))
		hits = append(hits, h)
	}
	return hits
}

// sentence returns a phrase as a sentence.
func sentence(phrase string) string {
	if phrase == "" || strings.HasPrefix(phrase, "nvidia-smi") {
		return phrase + "."
	}
	return strings.ToUpper(phrase[:1]) + phrase[1:] + "."
}
