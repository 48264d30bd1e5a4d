package html

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestPageShowsReadingsOfBlocks checks the section of blocks: pages of recordings without readings do not mention it.
func TestPageShowsReadingsOfBlocks(t *testing.T) {
	testclass.Unit(t)
	texts := []string{`id="blocks"`, "PyTorch's blocks by size", "131072 B"}
	page := pageText(t, analyzetest.BlocksRecording(t).Timeline(), Options{})
	other := pageText(t, analyzetest.TrainingRecording(t).Timeline(), Options{})
	for _, text := range texts {
		if !strings.Contains(page, text) && !strings.Contains(page, strings.ReplaceAll(text, "'", "&#39;")) {
			t.Errorf("the page lacks %q", text)
		}
		if strings.Contains(other, text) {
			t.Errorf("a page without readings has %q", text)
		}
	}
}
