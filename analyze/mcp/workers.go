package mcp

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// Limits of concurrent calls. Each report needs memory for the recording that it reads.
const (
	maxRunning = 2
	maxWaiting = 32
)

// errBusy is the error for a call when maxWaiting calls wait.
var errBusy = errors.New("too many calls at once: wait for answers")

// workers run functions, at most maxRunning at once.
type workers struct {
	waiting chan struct{} // one element for each call that waits or runs
	running chan struct{}
}

func newWorkers() *workers {
	return &workers{waiting: make(chan struct{}, maxRunning+maxWaiting), running: make(chan struct{}, maxRunning)}
}

// do runs a function and returns its result. When ctx is done, do returns its error at once; the function then ends at
// its next read of a recording, and occupies its place until then. A panic of the function becomes an error.
func (w *workers) do(ctx context.Context, function func() (string, error)) (string, error) {
	select {
	case w.waiting <- struct{}{}:
	default:
		return "", errBusy
	}
	select {
	case w.running <- struct{}{}:
	case <-ctx.Done():
		<-w.waiting
		return "", ctx.Err()
	}
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-w.running; <-w.waiting }()
		text, err := recoverPanic(function)
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		if err := ctx.Err(); err != nil { // a report may have counted failed reads as losses
			return "", err
		}
		return r.text, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// recoverPanic runs a function and returns its panic as an error. The stack goes to the standard error stream.
func recoverPanic(function func() (string, error)) (text string, err error) {
	defer func() {
		if p := recover(); p != nil {
			debug.PrintStack()
			err = fmt.Errorf("the report failed: %v", p)
		}
	}()
	return function()
}
