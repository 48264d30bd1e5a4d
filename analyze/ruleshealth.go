package analyze

import (
	"fmt"
	"slices"
	"strings"
)

var ruleGPUHealth = rule{
	id: "gpu-health",
	about: "a check of health of analyze gpu is not as it should be: uncorrected ECC errors, rows to be remapped, pages to be retired, too hot (a problem, of any GPU that was sampled); " +
		"corrected ECC errors, PCIe below what it can, packets sent again, ECC off (a notice, of GPUs that the recorded processes used)",
	report: "gpu",
	check:  checkGPUHealth,
}

func checkGPUHealth(s *survey) ([]hit, error) {
	var hits []hit
	used := s.watchedGPUs()
	for _, device := range s.gpu.Sorted() {
		hits = append(hits, s.healthHits(device, slices.Contains(used, device))...)
	}
	return hits, nil
}

// healthHits has a hit for the problems of a GPU, and one for its notices if the recorded processes used it.
func (s *survey) healthHits(device int32, used bool) (hits []hit) {
	for _, severity := range []int{aProblem, aNotice} {
		h := hit{severity: severity, level: confidenceHigh} // the GPU counts these itself
		var said, actions []string
		for _, state := range gpuHealthOf(s.gpu, device) {
			if state.level != severity || severity == aNotice && !used {
				continue
			}
			text := state.what + ": " + state.state
			said = append(said, text)
			if !slices.Contains(actions, state.action) {
				actions = append(actions, state.action)
			}
			h.places = append(h.places, place{where: s.gpuLabel(device), detail: fmt.Sprintf("%s: %s", text, state.action)})
		}
		if len(said) == 0 {
			continue
		}
		h.what = strings.Join(said, "; ")
		h.advice = sentence(strings.Join(actions, "; "))
		hits = append(hits, h)
	}
	return hits
}

// sentence makes one of a phrase.
func sentence(phrase string) string {
	if phrase == "" || strings.HasPrefix(phrase, "nvidia-smi") {
		return phrase + "."
	}
	return strings.ToUpper(phrase[:1]) + phrase[1:] + "."
}
