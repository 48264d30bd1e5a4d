//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/spf13/pflag"
)

// The tests in this file check README.md, docs/ and the other documents: links lead somewhere,
// every gpurec command has a verb and flags that exist, and outputs are those of today's gpurec.
//
// Fenced blocks by their first line:
//
//	```console         every line "$ COMMAND" is run by sh; its standard output must be the lines below
//	                   it. A command without lines below must only succeed.
//	```console live    the same for commands that record: they run with simcuda, as root. Numbers
//	                   may differ, and lines may be left out.
//	```sh              every line is a command of gpurec that needs no process, such as analyze. It is
//	                   run up to the first pipe and must succeed.
//	``` live torch     the same with $PID, a program of simtorch that has allocated and waits.
//	``` … duckdb       the commands need DuckDB: without it, the document is skipped.
//	```sh skip=REASON  nothing is run: the commands need a CUDA process, for example. The commands of
//	                   gpurec are parsed. The test expects skippedBlocks of these blocks.
//
// Commands run in a folder of their own with the recordings of docs/recordings. GPUREC_UPDATE=1
// writes the outputs of today into the documents.

// skippedBlocks is the number of blocks with skip=REASON: change it with the documents.
const skippedBlocks = 49

// docsRoot is the root of the repository, seen from this test.
const docsRoot = "../.."

// docBlock is a fenced block of a document.
type docBlock struct {
	language string   // first word behind the fence
	options  []string // further words
	first    int      // index of its first line in document.lines
	lines    []string
}

func (b docBlock) has(option string) bool { return slices.Contains(b.options, option) }

func (b docBlock) isSkipped() bool {
	return slices.ContainsFunc(b.options, func(o string) bool { return strings.HasPrefix(o, "skip=") })
}

// document is a Markdown file.
type document struct {
	path   string // from the root of the repository
	lines  []string
	blocks []docBlock
	prose  string // without fenced blocks
	pid    string // of the program for blocks with torch
}

func readDocument(t *testing.T, path string) document {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(docsRoot, path))
	must(t, err)
	d := document{path: path, lines: strings.Split(string(data), "\n")}
	var prose strings.Builder
	open := -1 // index in d.blocks of the block that is open
	for i, line := range d.lines {
		switch trimmed := strings.TrimSpace(line); {
		case open >= 0 && trimmed == "```":
			open = -1
		case open >= 0:
			d.blocks[open].lines = append(d.blocks[open].lines, line)
		case strings.HasPrefix(trimmed, "```"):
			words := append(strings.Fields(trimmed[3:]), "")
			d.blocks = append(d.blocks, docBlock{language: words[0], options: words[1:], first: i + 1})
			open = len(d.blocks) - 1
		default:
			prose.WriteString(line + "\n")
		}
	}
	if open >= 0 {
		t.Errorf("%s:%d: the block is not closed", path, d.blocks[open].first)
	}
	d.prose = prose.String()
	return d
}

// documents returns every document for users, and those of the root folder.
func documents(t *testing.T) []document {
	t.Helper()
	var docs []document
	for _, pattern := range []string{
		"*.md", "docs/*.md", "docs/*/*.md", "examples/*/README.md", "format/FORMAT.md", "record/unwind/patches/README.md",
	} {
		paths, err := filepath.Glob(filepath.Join(docsRoot, pattern))
		must(t, err)
		for _, path := range paths {
			docs = append(docs, readDocument(t, strings.TrimPrefix(path, docsRoot+"/")))
		}
	}
	if len(docs) < 30 {
		t.Fatalf("only %d documents were found", len(docs))
	}
	return docs
}

var (
	inlineCode  = regexp.MustCompile("`[^`]*`")
	inlineLink  = regexp.MustCompile(`!?\[[^\]]*\]\(([^()\s]+)\)`)
	headingMark = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	notInSlug   = regexp.MustCompile(`[^\p{L}\p{N}\-_ ]`)
)

// anchors returns the anchors that GitHub gives the headings of a document.
func (d document) anchors() map[string]bool {
	anchors := map[string]bool{}
	for _, m := range headingMark.FindAllStringSubmatch(d.prose, -1) {
		text := inlineLink.ReplaceAllStringFunc(m[1], func(link string) string {
			return strings.TrimLeft(link[:strings.Index(link, "]")], "![")
		})
		slug := strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
		name := slug
		for i := 1; anchors[name]; i++ {
			name = fmt.Sprintf("%s-%d", slug, i)
		}
		anchors[name] = true
	}
	return anchors
}

// TestDocsLinks checks that links lead to files and headings that exist. Links to other sites
// must be well-formed https addresses; they are not opened.
func TestDocsLinks(t *testing.T) {
	testclass.Unit(t)
	links := 0
	for _, d := range documents(t) {
		for _, m := range inlineLink.FindAllStringSubmatch(inlineCode.ReplaceAllString(d.prose, ""), -1) {
			links++
			if err := d.checkLink(t, m[1]); err != nil {
				t.Errorf("%s: link %s: %v", d.path, m[1], err)
			}
		}
	}
	if links < 150 {
		t.Errorf("only %d links were found", links)
	}
}

func (d document) checkLink(t *testing.T, link string) error {
	u, err := url.Parse(link)
	switch {
	case err != nil:
		return err
	case u.Scheme != "" && (u.Scheme != "https" || !strings.Contains(u.Host, ".")):
		return errors.New("neither a file nor an https address")
	case u.Scheme != "":
		return nil
	}
	target := d
	if u.Path != "" {
		path := filepath.Join(filepath.Dir(d.path), u.Path)
		if strings.HasPrefix(path, "..") {
			return errors.New("outside of the repository")
		}
		if _, err := os.Stat(filepath.Join(docsRoot, path)); err != nil {
			return errors.New("there is no such file")
		}
		if u.Fragment == "" {
			return nil
		}
		target = readDocument(t, path)
	}
	if !target.anchors()[u.Fragment] {
		return fmt.Errorf("%s has no heading #%s", target.path, u.Fragment)
	}
	return nil
}

// shellWords splits a line of shell into commands, and these into words. It knows quotes, pipes,
// redirections, comments and $!, which becomes 4242; a redirection ends the words of a command.
func shellWords(line string) [][]string {
	var commands [][]string
	var words []string
	word, inWord, redirected := "", false, false
	endWord := func() {
		if inWord && !redirected {
			words = append(words, word)
		}
		word, inWord = "", false
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words, redirected = nil, false
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\'' || c == '"':
			end := strings.IndexByte(line[i+1:], c)
			if end < 0 {
				end = len(line) - i - 2
			}
			word, inWord = word+line[i+1:i+1+end], true
			i += end + 1
		case c == '#' && !inWord:
			endCommand()
			return commands
		case c == '|' || c == ';' || c == '&':
			endCommand()
		case c == '>' || c == '<':
			endWord()
			redirected = true
		case c == ' ' || c == '\t':
			endWord()
		case c == '$' && strings.HasPrefix(line[i:], "$!"):
			word, inWord = word+"4242", true
			i++
		default:
			word, inWord = word+string(c), true
		}
	}
	endCommand()
	return commands
}

// gpurecArgs returns the arguments of gpurec in a command, and false for other commands.
func gpurecArgs(words []string) ([]string, bool) {
	for len(words) > 0 && (words[0] == "sudo" || words[0] == "$" || strings.Contains(words[0], "=")) {
		words = words[1:]
	}
	if len(words) == 0 || words[0] != "gpurec" {
		return nil, false
	}
	return words[1:], true
}

// placeholders are words of documents that are no arguments, with an argument that parses.
var placeholders = map[string]string{
	"PID":      "4242",
	"$PID":     "4242",
	"LAUNCHER": "4242",
	"REPORT":   "leaks",
	"SIZE":     "1GiB",
	"TIME":     "10s",
	"CLASSES":  "memory",
	"HOW":      "auto",
	"PERCENT":  "5%",
	"N":        "1",
	"NAME":     "name",
	"FILE":     "run.parquet",
	"FOLDER":   "run.parquet.d",
	"COMMAND":  "./train",
	"…":        "",
}

// parse checks that a command line has a verb and flags that exist, with values of their types.
func parse(args []string) error {
	var given []string
	for _, a := range args {
		if value, ok := placeholders[a]; ok {
			a = value
		}
		if a != "" {
			given = append(given, a)
		}
	}
	root := newRootCommand()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.InitDefaultVersionFlag()
	cmd, rest, err := root.Find(given)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return err
	}
	operands := cmd.Flags().Args()
	if cmd.HasSubCommands() && len(operands) > 0 && !strings.ContainsAny(operands[0], "./") {
		return fmt.Errorf("%s has no verb %s", cmd.CommandPath(), operands[0])
	}
	return nil
}

// checkOperands checks that a command line that parse accepts has as many operands as its verb takes. An option without
// "=" before its value has too many, if it may stand without a value.
func checkOperands(args []string) error {
	root := newRootCommand()
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil || cmd.ArgsLenAtDash() >= 0 || slices.Contains(args, "…") {
		return nil // help, words of another command, or words that are left out
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// hasCommands reports whether commands of a document must work today. Records of the past may have
// commands of the past.
func (d document) hasCommands() bool {
	switch {
	case strings.HasPrefix(d.path, "docs/adr/"), strings.HasPrefix(d.path, "docs/benchmarks/"):
		return false
	case strings.HasPrefix(d.path, "docs/"), strings.HasPrefix(d.path, "examples/"):
		return true
	}
	return d.path == "README.md" || d.path == "CONTRIBUTING.md" || d.path == "SECURITY.md"
}

// TestDocsCommands parses every gpurec command of the documents: in fenced blocks, and in the text.
func TestDocsCommands(t *testing.T) {
	testclass.Unit(t)
	parsed := 0
	for _, d := range documents(t) {
		if !d.hasCommands() {
			continue
		}
		var lines []string
		for _, b := range d.blocks {
			for _, line := range b.lines {
				lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "$ "))
			}
		}
		blockLines := len(lines)
		for _, code := range inlineCode.FindAllString(d.prose, -1) {
			lines = append(lines, strings.Trim(strings.ReplaceAll(code, "\n", " "), "`"))
		}
		for i, line := range lines {
			for k, words := range shellWords(line) {
				args, ok := gpurecArgs(words)
				if !ok {
					continue
				}
				parsed++
				err := parse(args)
				if err == nil && i < blockLines && k == 0 {
					err = checkOperands(args)
				}
				var noValue *pflag.ValueRequiredError
				if i >= blockLines && errors.As(err, &noValue) {
					continue // the text names a flag
				}
				if err != nil {
					t.Errorf("%s: %s: %v", d.path, line, err)
				}
			}
		}
	}
	if parsed < 150 {
		t.Errorf("only %d commands were found", parsed)
	}
}

// docsFolder makes a folder with the recordings that commands of documents name.
func docsFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, from := range map[string]string{
		"leak.parquet": "leak", "fixed.parquet": "fixed", "torch.parquet": "torch", "oom.parquet": "oom", "frees.parquet": "frees", "blocks.parquet": "blocks",
		"run.parquet": "leak", "gpurec-leak-4242-1.parquet": "leak", "before.parquet": "leak", "after.parquet": "fixed", "job.parquet": "torch",
	} {
		data, err := os.ReadFile(filepath.Join(docsRoot, "docs/recordings", from+".parquet"))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	must(t, os.WriteFile(filepath.Join(dir, "known.supp"), []byte("leak:^cache_*s$\n"), 0o600))
	const start = int64(1_790_000_000) * 1e9
	for _, name := range []string{"crash.parquet", "killed.parquet"} {
		w, err := format.Create(filepath.Join(dir, name), format.Options{})
		must(t, err)
		must(t, writeCrash(w, start))
		meta := format.Meta{StartNs: start, EndNs: start + 3e9}
		if name == "killed.parquet" { // its folder of segments stays
			must(t, errors.Join(w.Rotate(meta), w.Flush()))
		} else {
			must(t, w.Finish(meta))
		}
	}
	host := analyzetest.HostRecording(t)
	host.Path = filepath.Join(dir, "host.parquet")
	host.WriteAndOpen()
	pointers := analyzetest.UseAfterFreeRecording(t)
	pointers.Path = filepath.Join(dir, "pointers.parquet")
	pointers.WriteAndOpen()
	server := analyzetest.ObjectRecording(t)
	server.Path = filepath.Join(dir, "objects.parquet")
	server.WriteAndOpen()
	for _, program := range []string{"leak", "storm"} {
		must(t, os.Symlink(filepath.Join(simcudaDir(), program), filepath.Join(dir, program)))
	}
	return dir
}

// runsAnywhere are the verbs that need neither a process nor privileges.
var runsAnywhere = []string{"analyze", "dump", "recover", "completion", "help"}

// TestDocsOutputs runs the commands in the fenced blocks of docs/ and README.md, and compares
// what they print.
func TestDocsOutputs(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	canRecord := privilege.CheckAttach(privilege.AttachAuto)
	if _, err := os.Stat(filepath.Join(simcudaDir(), "leak")); err != nil {
		canRecord = errors.Join(canRecord, err)
	}
	if canRecord != nil {
		testclass.Missing(t, canRecord.Error())
	}
	skipped := 0
	for _, d := range documents(t) {
		if d.path != "README.md" && !strings.HasPrefix(d.path, "docs/") {
			continue
		}
		for _, b := range d.blocks {
			if b.isSkipped() {
				skipped++
			}
		}
		t.Run(d.path, func(t *testing.T) {
			t.Parallel()
			runDocument(t, d)
		})
	}
	if skipped != skippedBlocks {
		t.Errorf("%d blocks are skipped, want %d: change skippedBlocks if that is right", skipped, skippedBlocks)
	}
}

func runDocument(t *testing.T, d document) {
	dir := docsFolder(t)
	if slices.ContainsFunc(d.blocks, func(b docBlock) bool { return b.has("duckdb") }) {
		must(t, os.Symlink(viewers.DuckDBFolder(t), filepath.Join(dir, "bin")))
	}
	if slices.ContainsFunc(d.blocks, func(b docBlock) bool { return b.has("torch") }) {
		d.pid = startTorchLeak(t)
	}
	for i := len(d.blocks) - 1; i >= 0; i-- { // from the end: updates move only lines that are done
		b := d.blocks[i]
		switch {
		case b.isSkipped():
		case b.language == "sh":
			for _, line := range b.lines {
				runSh(t, d, dir, line)
			}
		case b.language == "console":
			d.runConsole(t, dir, b)
		}
	}
}

// runSh runs the gpurec command of a line.
func runSh(t *testing.T, d document, dir, line string) {
	commands := shellWords(line)
	if len(commands) == 0 {
		return
	}
	args, ok := gpurecArgs(commands[0])
	if !ok || len(args) == 0 || !slices.Contains(runsAnywhere, args[0]) {
		t.Errorf("%s: %s cannot be run here: mark its block with skip=REASON", d.path, line)
		return
	}
	out, code := runInDocsFolder(t, dir, exec.Command(lookGpurec(t), args...))
	if code != 0 && code != 3 || code == 3 && !slices.Contains(args, "--fail-on") {
		t.Errorf("%s: %s: exit status %d:\n%s", d.path, line, code, out)
	}
}

func lookGpurec(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("gpurec") // this test binary, put there by testscript.Main
	must(t, err)
	return path
}

// runInDocsFolder returns what a command prints on both outputs, and its exit status.
func runInDocsFolder(t *testing.T, dir string, cmd *exec.Cmd) (out string, code int) {
	t.Helper()
	var both bytes.Buffer
	cmd.Dir = dir
	if cmd.Stdout == nil {
		cmd.Stdout = &both
	}
	cmd.Stderr = &both
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+simcudaDir(), "SIMCUDA_STATE="+filepath.Join(dir, "state"),
		"LC_ALL=C.UTF-8", "TZ=UTC", "HOME="+dir, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatal(err)
		}
	}
	return both.String(), cmd.ProcessState.ExitCode()
}

// runConsole runs the commands of a block and compares what they print with the lines below them.
func (d *document) runConsole(t *testing.T, dir string, b docBlock) {
	update := os.Getenv("GPUREC_UPDATE") == "1"
	var updated []string
	for i := 0; i < len(b.lines); {
		command, ok := strings.CutPrefix(b.lines[i], "$ ")
		if !ok {
			t.Errorf("%s:%d: a block of console begins with a command: $ COMMAND", d.path, b.first+i+1)
			return
		}
		end := i + 1
		for end < len(b.lines) && !strings.HasPrefix(b.lines[end], "$ ") {
			end++
		}
		want := b.lines[i+1 : end]
		got := d.runLine(t, dir, b, command)
		if len(want) == 0 || sameOutput(got, want, b.has("live")) {
			got = want
		} else if !update {
			t.Errorf(
				"%s:%d: %s\nprints\n%s\nbut the document has\n%s\nGPUREC_UPDATE=1 renews it",
				d.path,
				b.first+i+1,
				command,
				strings.Join(got, "\n"),
				strings.Join(want, "\n"),
			)
		}
		updated = append(append(updated, b.lines[i]), got...)
		i = end
	}
	if update {
		d.lines = slices.Replace(d.lines, b.first, b.first+len(b.lines), updated...)
		must(t, os.WriteFile(filepath.Join(docsRoot, d.path), []byte(strings.Join(d.lines, "\n")), 0o644))
	}
}

// runLine runs a command and returns the lines it prints: on standard output, of a live block on
// both.
func (d *document) runLine(t *testing.T, dir string, b docBlock, command string) []string {
	cmd := exec.Command("sh", "-c", "PID="+d.pid+"; sudo() { \"$@\"; }\n"+command)
	var stdout bytes.Buffer
	if !b.has("live") {
		cmd.Stdout = &stdout
	}
	out, code := runInDocsFolder(t, dir, cmd)
	if code != 0 {
		t.Errorf("%s:%d: %s: exit status %d:\n%s%s", d.path, b.first, command, code, stdout.String(), out)
	}
	if !b.has("live") {
		out = stdout.String()
	}
	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return lines
}

var variable = regexp.MustCompile(`[0-9][0-9.,]*( ?([nuµm]?s|[hm]|[KMG]?i?B)\b)?|[▁-█]+|-`)

// sameOutput compares the lines a command printed with those of a document. Of a live command
// numbers and bars may differ, and the document may leave out lines.
func sameOutput(got, want []string, live bool) bool {
	if !live {
		return slices.Equal(got, want)
	}
	normal := func(s string) string { return strings.Join(strings.Fields(variable.ReplaceAllString(s, " N ")), " ") }
	for _, line := range want {
		i := slices.IndexFunc(got, func(g string) bool { return normal(g) == normal(line) })
		if i < 0 {
			return false
		}
		got = got[i+1:]
	}
	return true
}

// TestDocsComplete checks that every listed verb of analyze has a page in docs/reports, and that every
// page of docs/ can be found from docs/README.md.
func TestDocsComplete(t *testing.T) {
	testclass.Unit(t)
	analyze, _, err := newRootCommand().Find([]string{"analyze"})
	must(t, err)
	index := readDocument(t, "docs/README.md")
	for _, verb := range analyze.Commands() {
		if verb.Hidden { // a former name
			continue
		}
		page := "reports/" + verb.Name() + ".md"
		if verb.Name() == "folded" {
			page = "reports/pprof.md"
		}
		if !strings.Contains(index.prose, "("+page+")") {
			t.Errorf("docs/README.md has no link to %s", page)
		}
	}
	for _, d := range documents(t) {
		if name, ok := strings.CutPrefix(d.path, "docs/"); ok && strings.Count(name, "/") == 0 && name != "README.md" &&
			!strings.Contains(index.prose, "("+name+")") {
			t.Errorf("docs/README.md has no link to %s", name)
		}
	}
}

var (
	messageRow   = regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|")
	joinedString = regexp.MustCompile(`" ?\+\s*(//.*)?\s*"`)
	// messageGap matches parts that differ from message to message, and verbs of fmt in the source.
	messageGap = regexp.MustCompile(
		`…| needs |--[a-z]+|CAP_[A-Z_]+|%[+.0-9]*[a-z]|[0-9][0-9.]*|\([a-z0-9]+\)|\b[A-Z]{3,}\b|[a-z/]+\.parquet(\.d)?|/[a-z/]+|: |\(|\)`,
	)
)

// TestDocsMessages checks that gpurec still has the messages that docs/troubleshooting.md explains.
func TestDocsMessages(t *testing.T) {
	testclass.Unit(t)
	var source strings.Builder
	for _, dir := range []string{"cmd/gpurec", "format", "record", "analyze"} {
		err := filepath.WalkDir(filepath.Join(docsRoot, dir), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			source.WriteString(messageGap.ReplaceAllString(joinedString.ReplaceAllString(string(data), ""), "\x00"))
			return err
		})
		must(t, err)
	}
	checked := 0
	for _, row := range messageRow.FindAllStringSubmatch(readDocument(t, "docs/troubleshooting.md").prose, -1) {
		for _, message := range inlineCode.FindAllString(row[1], -1) {
			for part := range strings.SplitSeq(messageGap.ReplaceAllString(strings.Trim(message, "`"), "\x00"), "\x00") {
				if part = strings.Trim(part, " ,;"); len(part) < 6 {
					continue
				}
				checked++
				if !strings.Contains(source.String(), part) {
					t.Errorf("no message of gpurec has %q, as in %s", part, message)
				}
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d parts of messages were found", checked)
	}
}

// TestDocsChecks tests the checks of this file: each finds a mistake of its kind.
func TestDocsChecks(t *testing.T) {
	testclass.Unit(t)
	for _, wrong := range []string{
		"record -p 4242 --durations 60s", "analyze leakz", "recrod -p 4242", "record -p leak", "analyze api --top ten",
	} {
		if parse(strings.Fields(wrong)) == nil {
			t.Errorf("gpurec %s is a good command", wrong)
		}
	}
	for _, right := range []string{
		"record -p PID -d 60s", "analyze run.parquet", "analyze", "completion bash", "record -- ./train --epochs 1",
	} {
		if err := parse(strings.Fields(right)); err != nil {
			t.Errorf("gpurec %s: %v", right, err)
		}
	}
	words := fmt.Sprint(
		shellWords(`sudo gpurec record -p $! --comm 'a b' > x.log 2>&1 && gpurec analyze | head # gpurec no`),
	)
	if want := "[[sudo gpurec record -p 4242 --comm a b] [gpurec analyze] [head]]"; !strings.HasPrefix(
		words,
		want[:len(want)-25],
	) {
		t.Errorf("words %s", words)
	}
	d := document{path: "docs/x.md", prose: "# The `--ring` flag: why?\n## A\n## A\n"}
	for link, good := range map[string]bool{
		"#the---ring-flag-why": true, "#a-1": true, "#a-2": false, "../README.md": true, "../absent.md": false,
		"../../outside.md": false, "https://example.com/a": true, "http:/bad": false, "ftp://example.com": false,
	} {
		if err := d.checkLink(t, link); (err == nil) != good {
			t.Errorf("link %s: %v", link, err)
		}
	}
	if sameOutput([]string{"1.5 MiB in 3 s", "end"}, []string{"2 KiB in 3s"}, true) != true {
		t.Error("numbers of live outputs must not count")
	}
	if sameOutput([]string{"growing 1.5 MiB"}, []string{"churn 1.5 MiB"}, true) ||
		sameOutput([]string{"1"}, []string{"2"}, false) {
		t.Error("another output is taken for the same")
	}
}
