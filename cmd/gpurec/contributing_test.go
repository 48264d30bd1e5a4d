//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	goformat "go/format"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// The tests in this file apply the worked examples of CONTRIBUTING.md. The paragraph above a block
// ends with the name of the block's file, as in "In `bpf/table.go`:".
//
//	```diff  changes the file: + adds a line, - deletes one, other lines begin with a space and show
//	         the place. @@ separates places.
//	```sh    has no file: commands that test the example.
//	others   are the contents of a new file.

// workedExample is a section of CONTRIBUTING.md that changes the tree.
type workedExample struct {
	title    string
	blocks   []exampleBlock
	commands []string
}

// exampleBlock is a change of one file, or a new file. path is relative to the root.
type exampleBlock struct {
	path   string
	isDiff bool
	lines  []string
}

var blockFile = regexp.MustCompile("`([^`]+)`:$")

// workedExamples returns the sections "Add a …" of CONTRIBUTING.md.
func workedExamples(t *testing.T) []workedExample {
	t.Helper()
	d := readDocument(t, "CONTRIBUTING.md")
	var examples []workedExample
	for _, b := range d.blocks {
		title := d.headingAbove(b)
		if !strings.HasPrefix(title, "Add a ") {
			continue
		}
		if n := len(examples); n == 0 || examples[n-1].title != title {
			examples = append(examples, workedExample{title: title})
		}
		e := &examples[len(examples)-1]
		lines := b.unindentedLines(&d)
		if b.language == "sh" {
			e.commands = append(e.commands, lines...)
			continue
		}
		file := blockFile.FindStringSubmatch(d.textAbove(b))
		if file == nil {
			t.Fatalf("CONTRIBUTING.md:%d: the text above the block does not end with its file", b.first)
		}
		e.blocks = append(e.blocks, exampleBlock{file[1], b.language == "diff", lines})
	}
	if len(examples) != 3 {
		t.Fatalf("%d sections have examples", len(examples))
	}
	return examples
}

// headingAbove returns the heading of the section that a block is in.
func (d *document) headingAbove(b docBlock) string {
	for i := b.first - 1; i >= 0; i-- {
		if title, ok := strings.CutPrefix(d.lines[i], "## "); ok {
			return title
		}
	}
	return ""
}

// textAbove returns the last line of text above a block.
func (d *document) textAbove(b docBlock) string {
	for i := b.first - 2; i >= 0; i-- {
		if line := strings.TrimSpace(d.lines[i]); line != "" {
			return line
		}
	}
	return ""
}

// unindentedLines returns the lines of a block without the indentation of its list.
func (b docBlock) unindentedLines(d *document) []string {
	fence := d.lines[b.first-1]
	indent := fence[:len(fence)-len(strings.TrimLeft(fence, " "))]
	lines := slices.Clone(b.lines)
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], indent)
	}
	return lines
}

// apply returns the contents of the files that the example changes in a tree, by path.
func (e workedExample) apply(root string) (map[string]string, error) {
	changed := make(map[string]string)
	for _, b := range e.blocks {
		if !b.isDiff {
			changed[b.path] = strings.Join(b.lines, "\n") + "\n"
			continue
		}
		if _, ok := changed[b.path]; !ok {
			data, err := os.ReadFile(filepath.Join(root, b.path))
			if err != nil {
				return nil, err
			}
			changed[b.path] = string(data)
		}
		content, err := changeLines(changed[b.path], b.lines)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.path, err)
		}
		changed[b.path] = content
	}
	return changed, nil
}

// changeLines applies the lines of a block of diff to the content of a file. Each place must be in
// the file exactly once.
func changeLines(content string, diff []string) (string, error) {
	content = "\n" + content
	for place := range strings.SplitSeq(strings.Join(diff, "\n"), "\n@@\n") {
		before, after := "\n", "\n"
		for line := range strings.Lines(place + "\n") {
			switch mark, text := line[0], line[1:]; mark {
			case '+':
				after += text
			case '-':
				before += text
			case ' ':
				before, after = before+text, after+text
			default:
				return "", fmt.Errorf("the line %q begins with none of +, - and space", line)
			}
		}
		if n := strings.Count(content, before); n != 1 {
			return "", fmt.Errorf("the file has %d places with the lines%s", n, before)
		}
		content = strings.Replace(content, before, after, 1)
	}
	return content[1:], nil
}

// TestContributing compiles the worked examples of CONTRIBUTING.md, as an overlay of the tree.
func TestContributing(t *testing.T) {
	testclass.Unit(t)
	root, err := filepath.Abs(docsRoot)
	must(t, err)
	for _, e := range workedExamples(t) {
		t.Run(e.title, func(t *testing.T) {
			changed, err := e.apply(root)
			must(t, err)
			dir := t.TempDir()
			simcuda := filepath.Join("examples", "simcuda")
			must(t, os.CopyFS(filepath.Join(dir, simcuda), os.DirFS(filepath.Join(root, simcuda))))
			writeFiles(t, dir, changed)
			// go list compiles packages and their tests, as go vet does, also in folders that do not exist.
			compile := []string{"list", "-test", "-export", "-overlay", writeOverlay(t, root, dir, changed)}
			var sources []string
			for _, path := range slices.Sorted(maps.Keys(changed)) {
				switch filepath.Ext(path) {
				case ".go":
					checkFormat(t, path, changed[path])
					compile = append(compile, "./"+filepath.Dir(path))
				case ".c":
					sources = append(sources, filepath.Join(dir, path))
				}
			}
			runIn(t, root, "go", compile...)
			if len(sources) > 0 {
				flags := []string{"-fsyntax-only", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"}
				runIn(t, root, cmp.Or(os.Getenv("CC"), "cc"), append(flags, sources...)...)
			}
		})
	}
}

// TestContributingRuns runs the commands of the worked examples in a copy of the tree.
func TestContributingRuns(t *testing.T) {
	testclass.Lab(t, "lab")
	dir := t.TempDir()
	t.Setenv("GOWORK", filepath.Join(dir, "build", "go.work"))
	t.Setenv("GOFLAGS", "-trimpath") // so that the next copy in another folder finds its packages in the build cache
	t.Setenv("GPUREC_MUST_RUN", "1")
	runIn(
		t,
		docsRoot,
		"sh",
		"-c",
		"git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "+dir,
	)
	runIn(t, dir, "make", "workspace")
	for _, e := range workedExamples(t) {
		t.Run(e.title, func(t *testing.T) {
			changed, err := e.apply(dir)
			must(t, err)
			writeFiles(t, dir, changed)
			for _, command := range e.commands {
				runIn(t, dir, "sh", "-c", command)
			}
		})
	}
}

// writeFiles writes files below dir.
func writeFiles(t *testing.T, dir string, content map[string]string) {
	t.Helper()
	for path, text := range content {
		must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644))
	}
}

// writeOverlay writes an overlay of the go command, which replaces files of root by those of dir,
// and returns its path.
func writeOverlay(t *testing.T, root, dir string, changed map[string]string) string {
	t.Helper()
	replace := make(map[string]string)
	for path := range changed {
		replace[filepath.Join(root, path)] = filepath.Join(dir, path)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	must(t, err)
	writeFiles(t, dir, map[string]string{"overlay.json": string(overlay)})
	return filepath.Join(dir, "overlay.json")
}

func checkFormat(t *testing.T, path, source string) {
	t.Helper()
	if formatted, err := goformat.Source([]byte(source)); err != nil || string(formatted) != source {
		t.Errorf("%s is not formatted by gofmt: %v", path, err)
	}
}

// runIn runs a command in a folder. It prints the output of a command that fails.
func runIn(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}
