package hang_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/analyzetest"
	hangpkg "github.com/gpurec/gpurec/analyze/report/hang"
)

func TestDiffAndHangAreExplained(t *testing.T) {
	for _, command := range []string{"hang", "diff"} {
		var b bytes.Buffer
		if ok, err := analyze.Explain(&b, command); !ok || err != nil || !strings.Contains(b.String(), "quality") {
			t.Errorf("%s: %v %v", command, ok, err)
		}
	}
	r := hang(t, analyzetest.Ranks(t), hangpkg.Options{})
	var b bytes.Buffer
	if _, err := analyze.Explain(&b, "hang"); err != nil {
		t.Fatal(err)
	}
	for _, table := range r.Tables {
		for _, c := range table.Columns {
			if c.About == "" || !strings.Contains(b.String(), "  "+c.Key) {
				t.Errorf("%s is not explained", c.Key)
			}
		}
	}
}
