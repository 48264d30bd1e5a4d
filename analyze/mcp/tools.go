package mcp

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/export/digest"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// scopeArguments are the arguments of tools about one recording.
type scopeArguments struct {
	Recording string  `json:"recording"           jsonschema:"name of the recording, as list_recordings returns it"`
	From      string  `json:"from,omitempty"      jsonschema:"start of the time window: an offset such as 12s, or RFC 3339"`
	To        string  `json:"to,omitempty"        jsonschema:"end of the time window, as from"`
	Pids      []int32 `json:"pids,omitempty"      jsonschema:"only these processes"`
	Ranks     []int32 `json:"ranks,omitempty"     jsonschema:"only processes with these ranks in their job"`
	Devices   []int32 `json:"devices,omitempty"   jsonschema:"only these CUDA devices"`
	MaxChars  int     `json:"max_chars,omitempty" jsonschema:"largest length of the answer, at least 1000"`
}

// digestArguments are the arguments of the tool digest.
type digestArguments struct {
	scopeArguments
	Format string `json:"format,omitempty" jsonschema:"md (default) or json"`
}

// reportArguments are the arguments of the tool report.
type reportArguments struct {
	Report string `json:"report" jsonschema:"name of the report"`
	scopeArguments
	Format   string   `json:"format,omitempty"    jsonschema:"md (default) or json"`
	Top      *int     `json:"top,omitempty"       jsonschema:"largest number of rows of a table, 1 to 1000; default 20"`
	Sort     string   `json:"sort,omitempty"      jsonschema:"key of the column to sort by"`
	GroupBy  string   `json:"group_by,omitempty"  jsonschema:"for example site, stack or function; the error of a wrong value lists all"`
	Tids     []int32  `json:"tids,omitempty"      jsonschema:"only these threads"`
	Streams  []string `json:"streams,omitempty"   jsonschema:"only these CUDA streams, decimal or 0x..."`
	Kernel   string   `json:"kernel,omitempty"    jsonschema:"only kernels whose name matches this regular expression"`
	MinBytes int64    `json:"min_bytes,omitempty" jsonschema:"ignore allocations and copies below this size"`
	Stacks   bool     `json:"stacks,omitempty"    jsonschema:"show call stacks of rows that have one"`
}

// explainArguments are the arguments of the tool explain.
type explainArguments struct {
	Report string `json:"report"        jsonschema:"name of the report"`
	Key    string `json:"key,omitempty" jsonschema:"explain only values whose key contains this"`
}

// listArguments are the arguments of the tool list_recordings.
type listArguments struct {
	Folder string `json:"folder,omitempty" jsonschema:"only recordings in this folder, relative to the server's"`
}

// newTool returns the description of a tool. All tools only read, in a closed world.
func newTool(name, title, description string) *mcp.Tool {
	no := false
	return &mcp.Tool{
		Name: name, Title: title, Description: description,
		Annotations: &mcp.ToolAnnotations{
			Title: title, ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: &no, OpenWorldHint: &no,
		},
	}
}

// addTools adds the tools to a server.
func (s *Server) addTools(server *mcp.Server) error {
	mcp.AddTool(server, newTool("list_recordings", "List recordings",
		"Lists the recordings in the server's folder, the newest first."), s.list)
	digestTool := newTool("digest", "Digest of a recording",
		"Says what a recorded job is, what is wrong with it, with evidence and confidence, and which report shows "+
			"more. Call it first. A command \"gpurec analyze NAME ...\" in it is the tool report with that name.")
	reportTool := newTool("report", "Report about a recording",
		"Runs one report on a recording: "+describeReports()+".")
	explainTool := newTool("explain", "Explain a report", "Explains how each value of a report is computed.")
	err := errors.Join(
		setSchema[digestArguments](digestTool, false),
		setSchema[reportArguments](reportTool, true),
		setSchema[explainArguments](explainTool, true),
	)
	mcp.AddTool(server, digestTool, s.digest)
	mcp.AddTool(server, reportTool, s.report)
	mcp.AddTool(server, explainTool, s.explain)
	return err
}

// setSchema sets the schema of a tool's arguments: those of T, with the allowed values and bounds.
func setSchema[T any](tool *mcp.Tool, hasReport bool) error {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		return fmt.Errorf("schema of tool %s: %w", tool.Name, err)
	}
	if hasReport {
		for _, r := range analyze.Reports {
			names := &schema.Properties["report"].Enum
			*names = append(*names, r.Name)
			for _, name := range r.Aliases {
				*names = append(*names, name)
			}
		}
	}
	if format := schema.Properties["format"]; format != nil {
		format.Enum = []any{"md", "json"}
	}
	if chars := schema.Properties["max_chars"]; chars != nil {
		chars.Minimum = jsonschema.Ptr(float64(digest.MinMaxChars))
	}
	if top := schema.Properties["top"]; top != nil {
		top.Minimum, top.Maximum = jsonschema.Ptr(1.0), jsonschema.Ptr(float64(maxTop))
	}
	tool.InputSchema = schema
	return nil
}

// answer returns a text as the answer of a tool.
func answer(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// maxErrorChars is the largest length of an error's text.
const maxErrorChars = 1000

// describeError returns an error whose text is safe to show: it can have names of recordings.
func describeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return errors.New("the call was canceled")
	}
	return errors.New(quote(err.Error(), maxErrorChars))
}
