package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"sync"
	"testing"
)

// client is a client of the Model Context Protocol, written by hand: it shares no code with the server.
type client struct {
	t    *testing.T
	work *workers // of the server
	in   io.WriteCloser
	done chan error // has the result of serve when it ends

	mu      sync.Mutex
	next    int
	answers map[int]chan message
	others  []message // that answer no request
}

// message is a message of JSON-RPC 2.0.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      *int            `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// connect starts a server of a folder and returns a client, without a handshake.
func connect(t *testing.T, folder string, opt Options) *client {
	t.Helper()
	root, err := os.OpenRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	requests, toServer := io.Pipe()
	fromServer, answers := io.Pipe()
	server := newServer(root, &opt)
	c := &client{t: t, work: server.work, in: toServer, done: make(chan error, 1), answers: make(map[int]chan message)}
	go func() {
		c.done <- server.serve(context.Background(), requests, answers, &opt)
		answers.Close()
	}()
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.read(fromServer)
	}()
	t.Cleanup(func() {
		toServer.Close()
		<-read
		root.Close()
	})
	return c
}

// read sorts the messages of the server.
func (c *client) read(in io.Reader) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil || m.Version != "2.0" {
			c.t.Errorf("not a message of JSON-RPC: %v, %s", err, lines.Bytes())
			continue
		}
		c.mu.Lock()
		if m.ID != nil && m.Method == "" && c.answers[*m.ID] != nil {
			c.answers[*m.ID] <- m
			delete(c.answers, *m.ID)
		} else {
			c.others = append(c.others, m)
		}
		c.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, answer := range c.answers {
		close(answer)
	}
	c.answers = nil
}

// write sends a message.
func (c *client) write(m message) {
	c.t.Helper()
	m.Version = "2.0"
	text, err := json.Marshal(m)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.in.Write(append(text, '\n')); err != nil {
		c.t.Errorf("write %s: %v", text, err)
	}
}

// send sends a request, and returns its number and a channel with the answer. The channel is closed if the server
// ends before.
func (c *client) send(method string, params any) (id int, answer chan message) {
	c.t.Helper()
	c.mu.Lock()
	c.next++
	id, answer = c.next, make(chan message, 1)
	if c.answers != nil {
		c.answers[id] = answer
	} else {
		close(answer)
	}
	c.mu.Unlock()
	c.write(message{ID: &id, Method: method, Params: params})
	return id, answer
}

// request sends a request, and returns the answer.
func (c *client) request(method string, params any) message {
	c.t.Helper()
	_, answer := c.send(method, params)
	return <-answer
}

// object is a JSON object.
type object = map[string]any

// initialize does the handshake, and returns the result of initialize.
func (c *client) initialize() (result object) {
	c.t.Helper()
	m := c.request("initialize", object{
		"protocolVersion": "2025-06-18", "capabilities": object{}, "clientInfo": object{"name": "test", "version": "1"},
	})
	c.decode(m, &result)
	c.write(message{Method: "notifications/initialized"})
	return result
}

// decode decodes the result of an answer.
func (c *client) decode(m message, to any) {
	c.t.Helper()
	if m.Error != nil {
		c.t.Fatalf("error %d: %s", m.Error.Code, m.Error.Message)
	}
	if err := json.Unmarshal(m.Result, to); err != nil {
		c.t.Fatalf("%v: %s", err, m.Result)
	}
}

// toolResult is the result of a tool.
type toolResult struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`
}

// call calls a tool. It returns the text of the answer.
func (c *client) call(tool string, arguments any) (text string, result toolResult) {
	c.t.Helper()
	c.decode(c.request("tools/call", object{"name": tool, "arguments": arguments}), &result)
	if len(result.Content) != 1 || result.Content[0].Type != "text" {
		c.t.Fatalf("%s %v: content %+v", tool, arguments, result.Content)
	}
	return result.Content[0].Text, result
}

// mustCall calls a tool that must succeed.
func (c *client) mustCall(tool string, arguments any) string {
	c.t.Helper()
	text, result := c.call(tool, arguments)
	if result.IsError {
		c.t.Fatalf("%s %v: %s", tool, arguments, text)
	}
	return text
}

// mustFail calls a tool that must report an error.
func (c *client) mustFail(tool string, arguments any) string {
	c.t.Helper()
	text, result := c.call(tool, arguments)
	if !result.IsError {
		c.t.Fatalf("%s %v: no error, but %s", tool, arguments, text)
	}
	return text
}
