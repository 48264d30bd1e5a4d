package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gpurec/gpurec/format"
)

// clientTimeout bounds a request: the agent answers at once.
const clientTimeout = 15 * time.Second

// maxAnswerBytes bounds an answer.
const maxAnswerBytes = 16 << 20

// ReadStatus asks an agent for its state.
func ReadStatus(ctx context.Context, socket string) (s Status, err error) {
	err = call(ctx, socket, http.MethodGet, pathStatus, nil, &s)
	return s, err
}

// SendTrigger asks an agent for a capture. The result has the outcome.
func SendTrigger(ctx context.Context, socket string, r Request) (t format.Trigger, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return t, err
	}
	err = call(ctx, socket, http.MethodPost, pathTrigger, bytes.NewReader(body), &t)
	return t, err
}

// call sends a request to the agent's socket.
func call(ctx context.Context, socket, method, path string, body io.Reader, result any) error {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, body)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the agent refuses: %s", strings.TrimSpace(string(text)))
	}
	return json.Unmarshal(text, result)
}
